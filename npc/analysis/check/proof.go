package check

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// Assumptions are what is known of pods that could be there.
type Assumptions struct {
	// PodCIDRs are the ranges that they get addresses from. Without any, that is the /16 or the /48 of each address
	// that a pod has.
	PodCIDRs []netip.Prefix
	// NewNamespaces is set if they may be in namespaces that are not there, with the labels of those that are or
	// without any.
	NewNamespaces bool
}

// Prover checks expectations of one cluster. It is for one goroutine.
type Prover struct {
	// Counterexamples counts those that have pods that are not there. The names of these pods have their number.
	Counterexamples int

	view       *cluster.View
	others     map[string]string     // pods that are made up -> those like them that stand for workloads
	domains    map[string]netip.Addr // domain names of policies and expectations -> the addresses that stand for them
	ranges     []ipblock.Block
	namespaces []string // where pods may be, sorted
	invented   []npc.Namespace
	policies   map[string][]*cluster.Policy // by namespace
	tiers      map[string][]*policy.Cluster // by namespace, those whose subject pods in it may be
	// policyKeys are the keys of labels of pods that policies name, keys also those that expectations name.
	policyKeys, keys map[string]bool
	// portNames are the names of ports in policies and expectations, and numbers what pods have them for.
	portNames map[string]bool
	numbers   map[string][]flow.Service
	mentioned map[string]bool // namespace/name in expectations
	taken     []ipblock.Range // addresses of pods
	classes   []*class
	unasked   []string // pods that own none of their addresses
	// selected caches the namespaces that selectors match, combined the combinations of selectors; both by their text.
	selected map[string][]string
	combined map[string][]map[string]string
}

// New returns a prover for expectations about a view, with another pod for each that stands for a workload.
func New(v *cluster.View, a Assumptions, expectations []expectation.Expectation) *Prover {
	v, others := cluster.WithOthers(v)
	p := &Prover{view: v, others: map[string]string{}, domains: map[string]netip.Addr{}, policies: map[string][]*cluster.Policy{}, tiers: map[string][]*policy.Cluster{},
		portNames: map[string]bool{}, numbers: map[string][]flow.Service{}, mentioned: map[string]bool{},
		selected: map[string][]string{}, combined: map[string][]map[string]string{}}
	for of, other := range others {
		p.others[other] = of
	}
	p.setDomains(expectations)
	if a.NewNamespaces {
		p.invent()
	}
	p.findNamespaces()
	blocks := p.findNames(expectations)
	var taken []netip.Addr
	for _, q := range v.Pods {
		taken = append(taken, q.Claims()...)
		if q.StaleAddrs {
			taken = append(taken, q.Addrs...)
		}
		if q.HasNetwork() {
			p.addNumbers(q)
		}
	}
	for _, of := range p.numbers {
		slices.SortFunc(of, flow.Service.Compare)
	}
	p.taken = ranges(taken)
	p.setRanges(a.PodCIDRs, taken)
	p.classify(ipblock.NewClasses(append(blocks, p.ranges...)))
	return p
}

// setRanges sets where pods may have addresses.
func (p *Prover) setRanges(cidrs []netip.Prefix, taken []netip.Addr) {
	if len(cidrs) == 0 {
		for _, a := range taken {
			bits := 16
			if a.Is6() {
				bits = 48
			}
			cidrs = append(cidrs, netip.PrefixFrom(a, bits).Masked())
		}
	}
	slices.SortFunc(cidrs, netip.Prefix.Compare)
	for _, c := range slices.Compact(cidrs) {
		p.ranges = append(p.ranges, ipblock.Block{CIDR: c})
	}
}

// PodCIDRs returns where pods that could be there may have addresses.
func (p *Prover) PodCIDRs() (out []netip.Prefix) {
	for _, b := range p.ranges {
		out = append(out, b.CIDR)
	}
	return out
}

// Unasked returns the pods that no expectation is checked for, because they own none of their addresses, as
// namespace/name.
func (p *Prover) Unasked() []string { return p.unasked }

// findNamespaces finds the namespaces that exist or have objects in them, and their policies.
func (p *Prover) findNamespaces() {
	known := map[string]bool{}
	for name := range p.view.Namespaces {
		known[name] = true
	}
	for _, q := range p.view.Pods {
		known[q.Namespace] = true
	}
	for _, q := range p.view.Policies {
		known[q.Namespace] = true
		p.policies[q.Namespace] = append(p.policies[q.Namespace], q)
	}
	p.namespaces = slices.Sorted(maps.Keys(known))
	for _, q := range p.view.ClusterPolicies {
		if q.Inert {
			continue
		}
		for _, name := range p.namespacesOf(q.Namespaces) {
			p.tiers[name] = append(p.tiers[name], q)
		}
	}
}

// namespacesOf returns the namespaces with objects whose labels a selector matches.
func (p *Prover) namespacesOf(s policy.Selector) []string {
	text := s.String()
	out, ok := p.selected[text]
	if !ok {
		for _, name := range p.namespaces {
			if n, known := p.view.Namespaces[name]; known && s.Matches(n.Labels) {
				out = append(out, name)
			}
		}
		p.selected[text] = out
	}
	return out
}

// invent adds a namespace without labels, and one with the labels of each other.
func (p *Prover) invent() {
	known := map[string]bool{}
	add := func(l map[string]string) {
		l = maps.Clone(l)
		if l == nil {
			l = map[string]string{}
		}
		delete(l, nameLabel)
		if text := labels.Set(l).String(); !known[text] {
			known[text] = true
			name := p.unusedName("", "new-namespace")
			l[nameLabel] = name
			p.invented = append(p.invented, npc.Namespace{Name: name, Labels: l})
		}
	}
	add(nil)
	for _, name := range slices.Sorted(maps.Keys(p.view.Namespaces)) {
		add(p.view.Namespaces[name].Labels)
	}
	pods := slices.Collect(maps.Values(p.view.Pods))
	p.view = p.view.Assume(p.invented, pods)
}

// nameLabel is the label that the API server gives to each namespace.
const nameLabel = "kubernetes.io/metadata.name"

// findNames finds the labels, ports and names that policies and expectations distinguish, and returns their blocks.
func (p *Prover) findNames(expectations []expectation.Expectation) []ipblock.Block {
	blocks := policy.Blocks(cluster.Rules(p.view))
	for r := range cluster.Rules(p.view) {
		for _, port := range r.Ports {
			p.portNames[port.Name] = true
		}
	}
	p.policyKeys = cluster.PodLabels(p.view)
	p.keys = maps.Clone(p.policyKeys)
	for _, e := range expectations {
		for _, t := range slices.Concat(e.From, e.To) {
			blocks = append(blocks, t.Blocks...)
			for _, k := range t.Pods.Keys() {
				p.keys[k] = true
			}
			if t.Name != "" {
				p.mentioned[t.Namespace+"/"+t.Name] = true
			}
		}
		for _, port := range e.Ports {
			p.portNames[port.Name] = true
		}
	}
	delete(p.portNames, "")
	return blocks
}
