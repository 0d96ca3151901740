package main

import (
	"flag"
	"regexp"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"github.com/pkg/errors"
	k8stypes "k8s.io/apimachinery/pkg/types"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // all kinds of authentication in a kubeconfig
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init" // what is in a namespace goes to the log if a spec fails
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"  // a spec fails if a node is not ready afterwards
	_ "k8s.io/kubernetes/test/e2e/network/netpol"       // the specs
	"k8s.io/kubernetes/test/utils/image"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/command"
)

const (
	// suiteName stands in front of the names of specs where Ginkgo matches them.
	suiteName = "NetworkPolicy conformance"
	// sctpLabel is on specs that need SCTP sockets in the kernels of the nodes.
	sctpLabel = "Feature:SCTPConnectivity"
	// specLimit is how long a spec may take. A minute is usual, but one whose pods never reach each other tries much
	// longer.
	specLimit = 15 * time.Minute
)

// load prepares Kubernetes' test framework and lists the specs. The namespaces that specs make are labelled with the
// run.
func load(kubeconfig, run string) ([]types.SpecReport, error) {
	// Defaults of the framework's settings come with its flags.
	flags := flag.NewFlagSet("framework", flag.ContinueOnError)
	config.CopyFlags(config.Flags, flags)
	framework.RegisterCommonFlags(flags)
	framework.RegisterClusterFlags(flags)
	if err := flags.Parse([]string{"-kubeconfig", kubeconfig, "-provider", "skeleton"}); err != nil {
		return nil, errors.Wrap(err, "preparing the test framework")
	}
	framework.RunID = k8stypes.UID(run)
	framework.AfterReadingAllFlags(&framework.TestContext)
	specs := ginkgo.PreviewSpecs(suiteName).SpecReports
	return slices.DeleteFunc(specs, func(s types.SpecReport) bool { return !s.LeafNodeType.Is(types.NodeTypeIt) }), nil
}

// verdict is what Ginkgo prints when specs failed.
type verdict struct{ failed bool }

func (v *verdict) Fail() { v.failed = true }

// runSpec runs one spec in this process, with its output on the standard output and Ginkgo's report in a file.
func runSpec(name, file string) int {
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.FocusStrings = []string{"^" + regexp.QuoteMeta(suiteName+" "+name) + "$"}
	suite.Timeout = specLimit
	reporter.Verbose, reporter.NoColor, reporter.JSONReport = true, true, file
	v := &verdict{}
	ginkgo.RunSpecs(v, suiteName, suite, reporter)
	if v.failed {
		return command.Failed
	}
	return command.Passed
}

// needsSCTP reports whether a spec needs SCTP sockets.
func needsSCTP(spec types.SpecReport) bool { return slices.Contains(spec.Labels(), sctpLabel) }

// suiteVersion returns the version of Kubernetes that the specs are of.
func suiteVersion() string { return command.ModuleVersion("k8s.io/kubernetes") }

// podImage returns the image that the specs' pods run.
func podImage() string { return image.GetE2EImage(image.Agnhost) }
