package advice

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// policy returns a policy that allows the flows in a direction and as little else as labels can distinguish, or nil if
// the isolated end is no pod.
func (q question) policy(d npc.Direction) *networkingv1.NetworkPolicy {
	own, peerPod := q.pod(d), q.pod(d.Opposite())
	if own == nil {
		return nil
	}
	var peers []networkingv1.NetworkPolicyPeer
	peerName := ""
	if peerPod != nil {
		peer := networkingv1.NetworkPolicyPeer{PodSelector: q.selector(peerPod)}
		if peerPod.Namespace != own.Namespace {
			peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{
				corev1.LabelMetadataName: peerPod.Namespace,
			}}
		}
		peers, peerName = append(peers, peer), nickname(peerPod, peer.PodSelector)
	} else {
		for _, f := range q.Flows {
			_, to := f.Ends(d)
			if a := to.Addr; a.IsValid() {
				block := &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}
				peers, peerName = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: block}), a.String()
			}
		}
	}
	selector, ports := q.selector(own), portItems(q.Flows[0].Service)
	p := &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		Spec:     networkingv1.NetworkPolicySpec{PodSelector: *selector},
	}
	preposition := "from"
	if d == npc.Egress {
		preposition = "to"
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}}
	} else {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}}
	}
	p.Namespace = own.Namespace
	p.Name = q.free(own.Namespace,
		fmt.Sprintf("%s-%s-%s-%s", nickname(own, selector), preposition, peerName, q.Flows[0].Service))
	return p
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// mostName is the maximal length of a name.
const mostName = 63

// free returns a name similar to the wish that no policy of the namespace has.
func (q question) free(namespace, wish string) string {
	const number = 4 // characters that are reserved for a number at the end
	wish = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(wish), "-"), "-")
	wish = strings.TrimRight(wish[:min(len(wish), mostName-number)], "-")
	name := wish
	for i := 2; slices.ContainsFunc(q.view.Policies, func(p *cluster.Policy) bool {
		return p.Key() == npc.ObjectKey(namespace, name)
	}); i++ {
		name = fmt.Sprintf("%s-%d", wish, i)
	}
	return name
}

// nickname returns a short name for the pods that a selector matches: the value of a label, or the pod's name if there
// is none.
func nickname(p *npc.Pod, s *metav1.LabelSelector) string {
	for _, k := range ranked(s.MatchLabels) {
		if rank(k) < len(ranks) && s.MatchLabels[k] != "" {
			return s.MatchLabels[k]
		}
	}
	return p.Name
}

// portItems returns the ports of a rule that matches a service; none for a protocol without ports.
func portItems(s flow.Service) []networkingv1.NetworkPolicyPort {
	if s.Port == 0 {
		return nil
	}
	protocol, port := npc.APIProtocol(s.Protocol), intstr.FromInt32(int32(s.Port))
	return []networkingv1.NetworkPolicyPort{{Protocol: &protocol, Port: &port}}
}

// isOfRevision reports whether a label changes whenever its pod is replaced, so that no policy should name it.
func isOfRevision(key string) bool {
	switch key {
	case "pod-template-hash", "pod-template-generation", "controller-revision-hash", "controller-uid",
		"batch.kubernetes.io/controller-uid":
		return true
	}
	return false
}

// stable returns the labels of a pod that its replacement will have too.
func stable(p *npc.Pod) map[string]string {
	out := maps.Clone(p.Labels)
	maps.DeleteFunc(out, func(k, _ string) bool { return isOfRevision(k) })
	return out
}

// ranks are the labels that usually identify what a pod runs, the most specific first.
var ranks = [...]string{"app.kubernetes.io/name", "app", "k8s-app", "name", "role", "component",
	"app.kubernetes.io/component", "tier",
	"app.kubernetes.io/instance"}

// rank returns the place of a label in ranks, or a number after the last one.
func rank(key string) int {
	if i := slices.Index(ranks[:], key); i >= 0 {
		return i
	}
	switch key {
	case "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "helm.sh/chart":
		return len(ranks) + 1
	}
	return len(ranks)
}

// ranked returns the keys of labels, ordered by rank.
func ranked(labels map[string]string) []string {
	keys := slices.Sorted(maps.Keys(labels))
	slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
	return keys
}

// mostAbsent is the maximal number of keys that a selector requires to be absent.
const mostAbsent = 5

// selector returns a selector that matches, in the pod's namespace, the pod and as few others as labels can
// distinguish, with as few labels as possible. It has a label if the pod has any, because other pods may be created
// later.
func (q question) selector(p *npc.Pod) *metav1.LabelSelector {
	want := stable(p)
	matches := func(labels map[string]string, o *npc.Pod) bool {
		for k, v := range labels {
			if has, ok := o.Labels[k]; !ok || has != v {
				return false
			}
		}
		return true
	}
	var like []*npc.Pod // the others with all of the labels
	var others []*npc.Pod
	for _, o := range q.view.Pods {
		switch {
		case o.Namespace != p.Namespace || !o.HasNetwork() || o == p:
		case matches(want, o):
			like = append(like, o)
		default:
			others = append(others, o)
		}
	}
	selected := maps.Clone(want)
	for _, k := range slices.Backward(ranked(want)) {
		if len(selected) == 1 {
			break
		}
		delete(selected, k)
		if slices.ContainsFunc(others, func(o *npc.Pod) bool { return matches(selected, o) }) {
			selected[k] = want[k]
		}
	}
	s := &metav1.LabelSelector{MatchLabels: selected}
	for _, key := range absent(want, like) {
		s.MatchExpressions = append(s.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	return s
}

// absent returns a key of each pod's further labels: requiring their absence excludes the pods.
func absent(labels map[string]string, pods []*npc.Pod) (keys []string) {
	more := map[string]bool{}
	for _, o := range pods {
		extra := stable(o)
		maps.DeleteFunc(extra, func(k, _ string) bool { _, ok := labels[k]; return ok })
		if len(extra) > 0 {
			more[ranked(extra)[0]] = true
		}
	}
	keys = slices.Sorted(maps.Keys(more))
	return keys[:min(len(keys), mostAbsent)]
}

// toYAML returns policies as kubectl apply takes them.
func toYAML(policies []*networkingv1.NetworkPolicy) (string, error) {
	var texts []string
	for _, p := range policies {
		text, err := yaml.Marshal(p)
		if err != nil {
			return "", err
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, "---\n"), nil
}

// addText returns in one line which policies to add.
func addText(policies []*networkingv1.NetworkPolicy) string {
	var names []string
	for _, p := range policies {
		names = append(names, npc.ObjectKey(p.Namespace, p.Name))
	}
	return "add policy " + strings.Join(names, " and policy ")
}
