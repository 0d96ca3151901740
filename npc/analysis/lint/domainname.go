package lint

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// clusterDomain is the usual DNS domain of a cluster's own names.
const clusterDomain = "cluster.local"

// checkName checks a domain name of a rule, which may begin with "*.".
func checkName(l *linter, s subject, field, name string) {
	if l.isOfServices(name) {
		l.add(nameOfService, s, field,
			fmt.Sprintf("%s is for Services: a ClusterIP is translated to a pod's address before policies are evaluated; "+
				"select pods by labels", name), "")
	}
	if domain, wild := strings.CutPrefix(name, "*."); wild {
		if suffix := publicSuffix(domain); suffix != "" {
			l.add(wildcardPublic, s, field,
				fmt.Sprintf("%s stands for names that anybody may have, such as those below %s", name, suffix), "")
		}
	}
}

// publicSuffix returns a domain below which anybody may have names, such as co.uk or github.io: a given one, or a
// likely one below it, as s3.amazonaws.com is below amazonaws.com. It is empty if there is none.
func publicSuffix(domain string) string {
	for _, below := range [...]string{"", "s3.", "blob.", "blob.core."} {
		if suffix, _ := publicsuffix.PublicSuffix(below + domain); suffix == below+domain {
			return suffix
		}
	}
	return ""
}

// isOfServices reports whether a domain name is that of a Service, NAME.NAMESPACE.svc with the cluster's domain or
// without, or of all Services. Names below a Service's are of pods, as those of a StatefulSet. A domain that is not the
// usual one is the cluster's if it has the namespace.
func (l *pods) isOfServices(name string) bool {
	if name == "*."+clusterDomain || name == "*.svc."+clusterDomain {
		return true
	}
	labels := strings.SplitN(name, ".", 4)
	if len(labels) < 3 || labels[2] != "svc" {
		return false
	}
	_, exists := l.view.Namespaces[labels[1]]
	return exists || len(labels) == 3 || labels[3] == clusterDomain
}

// checkLearned looks for pods of a policy with domain names that may not ask a resolver whose answers are learned.
func checkLearned(l *linter, p *tierPolicy) {
	named := slices.ContainsFunc(p.Written[npc.Egress], func(r policy.WrittenRule) bool {
		return slices.ContainsFunc(r.Peers, func(peer policy.Peer) bool { return peer.Name != "" })
	})
	if !named {
		return
	}
	var without []*group
	for _, g := range p.subjects {
		if !l.mayAsk(g, npc.UDP, l.fitResolver) {
			without = append(without, g)
		}
	}
	slices.SortFunc(without, func(a, b *group) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if len(without) > 0 {
		l.add(egressDNS, p.subject(), "spec.egress",
			fmt.Sprintf("no rule allows %s to ask kube-dns at udp/53, from whose answers addresses of domainNames "+
				"are learned", podsText(without)), "")
	}
}

// fitResolver reports whether peers of a rule are the resolvers whose answers are learned: pods of kube-dns, and
// addresses of --dns-resolvers. Which these are is not known.
func (l *pods) fitResolver(peers []policy.Peer) policy.Fit {
	fit := policy.FitOf(len(peers) == 0)
	var blocks []netip.Prefix
	for _, p := range peers {
		if p.Block != nil || p.Nodes != nil || mayBeKubeDNS(p) {
			fit = max(fit, policy.Maybe)
		}
		if p.Block != nil && len(p.Block.Except) == 0 {
			blocks = append(blocks, p.Block.CIDR)
		}
	}
	if l.areAll(blocks) {
		return policy.Always
	}
	return fit
}

// mayBeKubeDNS reports whether a peer selects pods with the namespace and the label of kube-dns, if they have the other
// labels that it requires.
func mayBeKubeDNS(p policy.Peer) bool {
	if p.Namespaces == nil && p.Namespace != metav1.NamespaceSystem {
		return false
	}
	return allows(p.Namespaces, corev1.LabelMetadataName, metav1.NamespaceSystem) &&
		allows(p.Pods, "k8s-app", "kube-dns")
}

// allows reports whether a selector may match what has a label.
func allows(s *policy.Selector, key, value string) bool {
	if s == nil {
		return true
	}
	all := constraintsOf(*s)
	c, limited := all[key]
	return all != nil && (!limited || c.allows(value))
}

// areAll reports whether ranges have all addresses of the families that pods have.
func (l *pods) areAll(ranges []netip.Prefix) bool {
	if len(ranges) == 0 || len(l.addrs) == 0 {
		return false
	}
	for _, a := range [...]netip.Addr{l.addrs[0], l.addrs[len(l.addrs)-1]} { // sorted: each family is at one end
		if all, err := a.Prefix(0); err != nil || !covers(ranges, all) {
			return false
		}
	}
	return true
}
