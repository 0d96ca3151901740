package source

import (
	"context"
	"net/netip"
	"os"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	netutils "k8s.io/utils/net"
)

// Requests per second, and in a burst, beyond which the client waits. Watches count once, when they start.
const (
	clientQPS   = 20
	clientBurst = 40
)

// Client returns a client for the API server that a kubeconfig file names, or, if kubeconfig is empty, for that of the
// cluster we run in. An error is one line that names the file and the way out.
func Client(kubeconfig, version string) (kubernetes.Interface, *rest.Config, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
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

// UserClient returns a client for the API server that kubectl would talk to: that of a kubeconfig file, or of $KUBECONFIG and
// ~/.kube/config if it is empty, or of the cluster we run in; with another context than the current one, if it is not empty.
func UserClient(kubeconfig, context, version string) (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no API server is known: give --kubeconfig FILE or --manifests DIR")
	}
	if err != nil {
		return nil, errors.Wrap(err, "reading the kubeconfig; name another one with --kubeconfig")
	}
	client, err := newClient(config, version)
	return client, errors.Wrap(err, "making a client")
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
		return nil, errors.Wrapf(err, "kubeconfig %s: context %q; mend the file or give another one with --kubeconfig",
			kubeconfig, file.CurrentContext)
	}
	return config, nil
}

func inClusterConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("no API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this" +
			" is no pod; give --kubeconfig FILE or --manifests DIR")
	case err != nil:
		return nil, errors.Wrap(err, "the pod's service account cannot be read; set automountServiceAccountToken,"+
			" or give --kubeconfig FILE")
	}
	return config, nil
}

// NodeRanges returns the pod address ranges of a node (spec.podCIDRs). There may be none, and they may appear late.
// apierrors.IsNotFound tells an unknown node from other errors.
func NodeRanges(ctx context.Context, client kubernetes.Interface, node string) ([]netip.Prefix, error) {
	n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errors.Wrapf(err, "the cluster has no node %q; give its name with --node-name", node)
	}
	if err != nil {
		return nil, errors.Wrapf(err, "getting node %q", node)
	}
	return nodeRanges(n)
}

// NodeAddrs returns the addresses in a node's status.addresses. Names among them are left out.
func NodeAddrs(ctx context.Context, client kubernetes.Interface, node string) ([]netip.Addr, error) {
	n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, errors.Wrapf(err, "getting node %q", node)
	}
	var texts []string
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			texts = append(texts, a.Address)
		}
	}
	found, _ := addrs("status.addresses", texts)
	return found, nil
}

func nodeRanges(n *corev1.Node) ([]netip.Prefix, error) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	var ranges []netip.Prefix
	for _, text := range texts {
		_, ipnet, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			return nil, errors.Wrapf(err, "node %q: spec.podCIDRs", n.Name)
		}
		addr, _ := netip.AddrFromSlice(ipnet.IP)
		bits, _ := ipnet.Mask.Size()
		ranges = append(ranges, netip.PrefixFrom(addr, bits))
	}
	return ranges, nil
}
