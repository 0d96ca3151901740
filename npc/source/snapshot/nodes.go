package snapshot

import (
	"context"
	"net/netip"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// NodeRanges returns the pod address ranges of a node (spec.podCIDRs). There may be none yet. apierrors.IsNotFound
// holds for the error if the cluster has no such node.
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

// NodeAddrs returns the addresses in a node's status.addresses, without the host names there.
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
	found, _ := convert.Addrs("status.addresses", texts)
	return found, nil
}

func nodeRanges(n *corev1.Node) ([]netip.Prefix, error) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	var ranges []netip.Prefix
	for _, text := range texts {
		prefix, err := ipblock.ParseCIDR(text)
		if err != nil {
			return nil, errors.Wrapf(err, "node %q: spec.podCIDRs", n.Name)
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}
