package main

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	api "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	upstream "sigs.k8s.io/network-policy-api/conformance/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/command"
)

const (
	// suiteName is the name of the Go test that all tests of the suite are below, and of the kind that they are about.
	suiteName = "ClusterNetworkPolicy"
	// suiteModule is the module that the suite comes from.
	suiteModule = "sigs.k8s.io/network-policy-api"
	// readyLimit is how long the suite's pods, about 70 containers, may take to start.
	readyLimit = 15 * time.Minute
	// suiteLimit is how long all may take.
	suiteLimit = 2 * time.Hour
)

// plan is what the process that runs the suite has to know.
type plan struct {
	Kubeconfig   string
	Image        string
	SCTP         bool
	Experimental bool
	// Run are the subtests that run, by test, and All how many the test has.
	Run, All map[string]int
	// Report is the file for upstream's report.
	Report string
	// Summary is its text for people.
	Summary        string
	Implementation upstream.Implementation
}

// runSuite runs the suite in this process, as Go's tests are run, by the plan in a file. It does not return.
func runSuite(file string, flags []string) {
	os.Args = append(os.Args[:1], flags...)
	testing.Main(regexp.MatchString, []testing.InternalTest{{Name: suiteName, F: func(t *testing.T) {
		content, err := os.ReadFile(file)
		var p plan
		if err == nil {
			err = json.Unmarshal(content, &p)
		}
		if err == nil {
			err = p.run(t)
		}
		if err != nil {
			t.Fatal(err)
		}
	}}}, nil, nil)
}

// run runs the tests and writes upstream's report.
func (p *plan) run(t *testing.T) error {
	log.SetLogger(log.Log) // controller-runtime complains of a logger that was never set
	options, err := p.options()
	if err != nil {
		return err
	}
	s, err := suite.NewConformanceProfileTestSuite(*options)
	if err != nil {
		return errors.Wrap(err, "preparing the suite")
	}
	s.Setup(t)
	if err := s.Run(t, p.tests()); err != nil {
		return errors.Wrap(err, "running the suite")
	}
	report, err := s.Report()
	if err != nil {
		return errors.Wrap(err, "collecting the report of the suite")
	}
	return p.write(report)
}

// options returns the options of the suite.
func (p *plan) options() (*suite.ConformanceProfileOptions, error) {
	rest, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return nil, errors.Wrap(err, "reading the kubeconfig")
	}
	rest.QPS, rest.Burst = 50, 100
	c, err := client.New(rest, client.Options{})
	if err != nil {
		return nil, errors.Wrap(err, "making a client")
	}
	if err := api.Install(c.Scheme()); err != nil {
		return nil, errors.Wrap(err, "adding ClusterNetworkPolicy to the client")
	}
	set, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, errors.Wrap(err, "making a client")
	}
	features := sets.New(suite.SupportClusterNetworkPolicy)
	if p.Experimental {
		features = suite.AllFeatures.Clone()
	}
	return &suite.ConformanceProfileOptions{
		Options: suite.Options{
			Client: baseClient{Client: c, image: p.Image, sctp: p.SCTP}, ClientSet: set, KubeConfig: *rest,
			CleanupBaseResources: true, SupportedFeatures: features, SkipTests: p.leftOut(),
			TimeoutConfig: config.TimeoutConfig{NamespacesMustBeReady: readyLimit},
		},
		Implementation:      p.Implementation,
		ConformanceProfiles: sets.New(suite.CNPConformanceProfileName),
	}, nil
}

// leftOut returns the tests without a subtest that runs.
func (p *plan) leftOut() []string {
	var names []string
	for _, test := range tests.ConformanceTests {
		if p.Run[test.ShortName] == 0 {
			names = append(names, test.ShortName)
		}
	}
	return names
}

// tests returns the tests of the suite. A test that runs in part counts as skipped in upstream's report unless it
// fails: Go's tests do not report what -test.run leaves out.
func (p *plan) tests() []suite.ConformanceTest {
	var all []suite.ConformanceTest
	for _, test := range tests.ConformanceTests {
		if n := p.Run[test.ShortName]; n > 0 && n < p.All[test.ShortName] {
			whole := test.Test
			test.Test = func(t *testing.T, s *suite.ConformanceTestSuite) {
				s.SkipTests.Insert(test.ShortName)
				whole(t, s)
			}
		}
		all = append(all, test)
	}
	return all
}

// write writes upstream's report.
func (p *plan) write(report *upstream.ConformanceReport) error {
	report.NetworkPolicyV2APIVersion = suiteVersion() // the suite of v0.2.0 says v0.1.2
	for i := range report.ProfileReports {
		profile := &report.ProfileReports[i]
		profile.Standard.Summary = p.Summary
		if profile.Experimental != nil {
			profile.Experimental.Summary = p.Summary
		}
	}
	content, err := yaml.Marshal(report)
	if err == nil {
		err = os.WriteFile(p.Report, content, 0o644)
	}
	return errors.Wrap(err, "writing the report of the suite")
}

// experimentalTests returns the names of the tests that are about experimental fields.
func experimentalTests() map[string]bool {
	names := map[string]bool{}
	for _, test := range tests.ConformanceTests {
		names[test.ShortName] = !suite.StandardFeatures.HasAll(test.Features...)
	}
	return names
}

// suiteVersion returns the version of the suite.
func suiteVersion() string { return command.ModuleVersion(suiteModule) }
