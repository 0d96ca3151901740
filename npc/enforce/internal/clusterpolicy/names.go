package clusterpolicy

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// names are the domain names that policies accept local pods to reach, and what every node needs for them: the sets of
// these pods and of the resolvers. They are there while there are such pods.
type names struct {
	// text has all of the names, sorted, one a line.
	text string
	pods [len(npc.Families)]*dataplane.Set
	// others are the resolvers that the operator trusts, and alive shows that answers are learned.
	others, alive [len(npc.Families)]*dataplane.Set
	// resolvers are the cluster's own, and user stands for the rules that ask for them.
	resolvers index.Provisioned
	user      *dataplane.Owner
}

// follow finds the names of the policies that choose a local pod. It reports whether sets came that pods belong into.
func (n *names) follow(t *Tiers, choosing []*enforced) bool {
	var all []string
	for _, p := range choosing {
		for _, s := range p.names() {
			all = append(all, s.Names...)
		}
	}
	slices.Sort(all)
	n.text = strings.Join(slices.Compact(all), "\n")
	if n.text == "" || n.user != nil {
		return false
	}
	n.user = &dataplane.Owner{Name: "domain names"}
	n.resolvers = t.index.Sets.Provision(rules.ClusterResolvers(), n.user)
	n.resolvers.Fix()
	for f, table := range t.tables {
		n.pods[f] = table.Sets.AddFixed(naming.DNSPods, ipset.HashIP, "local pods that may reach domain names")
		alive := ipset.Set{Name: naming.FixedSet(npc.Family(f), naming.DNSAlive), Type: ipset.HashNet,
			Timeout: naming.AliveTimeout}
		// It is made full: the first answer would pass unlearned if the learner were to fill it.
		n.alive[f] = dataplane.Fix(table.Sets.AddExpiring(alive, "all addresses, while answers of resolvers are learned",
			func() []ipset.Element { return domainnames.Everywhere(npc.Family(f)) }))
		n.others[f] = table.Sets.AddFixed(naming.DNSResolvers, ipset.HashIPPort, "resolvers that --dns-resolvers names")
	}
	for _, r := range t.resolvers {
		for _, protocol := range [...]uint8{npc.UDP, npc.TCP} {
			n.others[npc.FamilyOf(r.Addr())].Add(ipset.AddrPort(r.Addr(), protocol, r.Port()),
				ipset.Attr{Comment: "--dns-resolvers"})
		}
	}
	return true
}

// prune drops the sets once there are no names any more.
func (n *names) prune(t *Tiers) {
	if n.user == nil || n.text != "" {
		return
	}
	t.index.Sets.Deprovision(n.resolvers, n.user)
	for f := range t.tables {
		n.pods[f].Drop()
		n.alive[f].Drop()
		n.others[f].Drop()
	}
	*n = names{}
}

// names returns the lists of names of the policy's rules.
func (p *enforced) names() (out []rules.NamesSpec) {
	for _, s := range p.rendered.Sets {
		if spec, is := s.SetSpec.(rules.NamesSpec); is {
			out = append(out, spec)
		}
	}
	return out
}

// names returns the lists of names that the pod may reach.
func (st *podState) names() (out []rules.NamesSpec) {
	if c := st.combinations[policy.Admin][npc.Egress]; c != nil {
		for _, p := range c.policies {
			out = append(out, p.names()...)
		}
	}
	return out
}

// NamesOf returns the lists of domain names that local pods may reach, and the addresses of the local pods with the keys
// of theirs.
func NamesOf(t *Tiers) (lists []domainnames.List, pods map[netip.Addr][]string) {
	if t.names.text == "" {
		return nil, nil
	}
	pods = make(map[netip.Addr][]string, len(t.pods))
	known := map[string]bool{}
	for q, st := range t.pods {
		var keys []string
		for _, spec := range st.names() {
			key := policy.NamesKey(spec.Names)
			if keys = append(keys, key); !known[key] {
				known[key] = true
				lists = append(lists, listOf(key, spec))
			}
		}
		for _, a := range q.Owned() {
			pods[a] = keys
		}
	}
	slices.SortFunc(lists, func(a, b domainnames.List) int { return strings.Compare(a.Key, b.Key) })
	return lists, pods
}

// ResolversOf returns the addresses of the resolvers whose answers some node learns: none without a policy with names.
func ResolversOf(t *Tiers) (out []netip.Addr) {
	named := false
	for _, p := range t.policies {
		named = named || p.hasNames()
	}
	if !named {
		return nil
	}
	for _, r := range t.resolvers {
		out = append(out, r.Addr())
	}
	for _, s := range rules.ClusterResolvers() {
		spec := s.SetSpec.(rules.SelectorSpec)
		for q := range t.index.PodsOf(spec.Namespace) {
			if spec.Pods.Matches(labels.Set(q.Facts().Labels)) {
				out = append(out, q.Owned()...)
			}
		}
	}
	return out
}

// hasNames reports whether a rule of the policy has domain names, whether it chooses a pod or not.
func (p *enforced) hasNames() bool {
	return slices.ContainsFunc(p.Rules[npc.Egress], func(r policy.ClusterRule) bool {
		return slices.ContainsFunc(r.Peers, func(peer policy.MergedPeer) bool { return peer.Names != nil })
	})
}

// listOf returns a list of names with its sets.
func listOf(key string, spec rules.NamesSpec) domainnames.List {
	l := domainnames.List{Key: key, Names: spec.Names}
	set, past := rules.NewSet(spec), rules.NewSet(rules.PastNamesSpec(spec))
	for f := range npc.Families {
		l.Sets[f] = ipset.Set{Name: set.Name(npc.Family(f)), Type: ipset.HashIP, Family: naming.IPSet(npc.Family(f)),
			Timeout: naming.LearnedTimeout}
		l.Past[f] = l.Sets[f]
		l.Past[f].Name, l.Past[f].Timeout = past.Name(npc.Family(f)), naming.PastTimeout
	}
	return l
}
