// Package apiclient makes clients for an API server: for a daemon in the cluster, and for users with a kubeconfig.
//
//	client, config, err := apiclient.New("", version) // the server of the cluster that the process runs in
//	policies, err := apiclient.NewPolicyClient(client, config) // for ClusterNetworkPolicies, which it may lack
//
// To make them sends no request. Errors are one line that names the file and the flag that helps.
package apiclient

import (
	"cmp"
	"os"
	"regexp"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weave-npc/weave-npc/npc/source/apiclient/answers"
)

// Requests per second, and in a burst, above which the client waits. A watch counts once, when it starts.
const (
	clientQPS   = 20
	clientBurst = 40
)

// New returns a client for the API server that a kubeconfig file names, or, if kubeconfig is empty, for that of the
// cluster that the process runs in. It lists objects without the parts that a daemon does not need.
func New(kubeconfig, version string) (kubernetes.Interface, *rest.Config, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	config.Wrap(answers.Reduced)
	client, err := newClient(config, version)
	if err != nil {
		if kubeconfig == "" {
			return nil, nil, errors.Wrap(err, "making a client from the pod's service account")
		}
		return nil, nil, errors.Wrapf(err, "kubeconfig %s: making a client", kubeconfig)
	}
	return client, config, nil
}

func newClient(config *rest.Config, version string) (kubernetes.Interface, error) {
	config.UserAgent = "weave-npc/" + version
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = clientQPS
	config.Burst = clientBurst
	return kubernetes.NewForConfig(config)
}

// ErrNoServer is the error of ForUser if nothing names an API server.
var ErrNoServer = errors.New("no API server is known: give --kubeconfig FILE")

// otherKind matches what client-go says of a file that holds another object.
var otherKind = regexp.MustCompile(`no kind "([^"]*)" is registered .*`)

// ForUser returns a client for the API server that kubectl would use: that of the kubeconfig file, or of $KUBECONFIG and
// ~/.kube/config without one, or of the cluster that the process runs in.
func ForUser(a Access, version string) (kubernetes.Interface, *rest.Config, error) {
	if _, err := clientcmd.ParseTimeout(cmp.Or(a.Timeout, "0")); err != nil {
		return nil, nil, errors.Errorf("--request-timeout: %q is no time such as 30s or 2m", a.Timeout)
	}
	config, err := a.config().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, nil, ErrNoServer
	}
	if err != nil {
		return nil, nil, errors.Errorf("reading the kubeconfig; name another one with --kubeconfig: %s",
			otherKind.ReplaceAllString(err.Error(), "its kind is $1, not Config"))
	}
	config.Wrap(answers.Checked)
	client, err := newClient(config, version)
	return client, config, errors.Wrap(err, "making a client")
}

// NamespaceOfUser returns the namespace of the context that ForUser selects; empty if the context names none.
func NamespaceOfUser(a Access) string {
	namespace, named, err := a.config().Namespace()
	if err != nil || !named && namespace == metav1.NamespaceDefault {
		return ""
	}
	return namespace
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return inClusterConfig()
	}
	file, err := clientcmd.LoadFromFile(kubeconfig)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errors.Errorf("kubeconfig %s: no such file; give the right one with --kubeconfig", kubeconfig)
	case err != nil:
		return nil, errors.Wrapf(err, "kubeconfig %s: cannot be read; give the right one with --kubeconfig", kubeconfig)
	case file.CurrentContext == "" && len(file.Contexts) == 0:
		return nil, errors.Errorf("kubeconfig %s: has no contexts; give another one with --kubeconfig", kubeconfig)
	case file.CurrentContext == "":
		return nil, errors.Errorf("kubeconfig %s: no current-context; choose one with kubectl --kubeconfig %s config"+
			" use-context NAME", kubeconfig, kubeconfig)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, errors.Wrapf(err, "kubeconfig %s: resolving the paths in it", kubeconfig)
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errors.Wrapf(err, "kubeconfig %s: context %q; "+
			"correct the file or give another one with --kubeconfig",
			kubeconfig, file.CurrentContext)
	}
	return config, nil
}

func inClusterConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("no API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, " +
			"so this" +
			" is no pod; give --kubeconfig FILE or --manifests DIR")
	case err != nil:
		return nil, errors.Wrap(err, "the pod's service account cannot be read; set automountServiceAccountToken,"+
			" or give --kubeconfig FILE")
	}
	return config, nil
}
