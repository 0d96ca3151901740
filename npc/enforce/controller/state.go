package controller

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/clusterpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/failclosed"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// state is the desired state of the node, in memory: the parts, and the order of their updates after an event.
type state struct {
	config enforce.Config
	limits quota.Limits
	now    func() time.Time

	tables     [len(npc.Families)]*dataplane.Table
	index      *index.Index
	isolation  *networkpolicy.Isolation
	tiers      *clusterpolicy.Tiers
	failClosed *failclosed.Filter
	// names are the domain names that policies ask for, and what the learner found for them.
	names *domainnames.Names
	// editing decides which chains of ordered rules are edited in place.
	editing iptables.Editing
	synced  bool
	// edited is set if flows may have another verdict since the last plan, other than by pods that come and go.
	edited bool
	input  input
	late   late
	// endsLate is set once connections have ended that began before their pod was known.
	endsLate bool
	policies policies
	// uplinks are the ports of the pods' bridge that connect to no pod of this node.
	uplinks []string
	// activeTiers is what cluster network policies evaluate.
	activeTiers rules.ActiveTiers
	// named is set if the learner was given names.
	named   bool
	members []index.Membership // memory to find a pod's memberships in
}

func newState(config enforce.Config) *state {
	s := &state{config: config, names: domainnames.NewNames(), limits: cmp.Or(config.Budget, quota.Default()), now: time.Now,
		tables:  dataplane.NewTables(),
		editing: iptables.DefaultEditing(naming.ScratchChain)}
	s.index = index.New(index.Config{NodeName: config.NodeName, Booted: config.Booted, MaxListSize: config.MaxListSize,
		Learned: s.names.Elements}, s.tables)
	s.isolation = s.newIsolation(networkpolicy.DefaultSharding())
	s.tiers = clusterpolicy.New(s.index, s.tables, s.base(), config.DNSResolvers)
	s.input.tables, s.policies = s.tables, policies{s.isolation, s.tiers, s.index.Addresses}
	s.failClosed = failclosed.New(config, s.tables, s.index)
	return s
}

// newIsolation makes the base's chains, and an Isolation whose rules they jump to.
func (s *state) newIsolation(sharding networkpolicy.Sharding) *networkpolicy.Isolation {
	base := s.base()
	var roots [len(npc.Directions)][len(npc.Families)]*dataplane.Chain
	for f, t := range s.tables {
		for d, root := range t.Chains.AddBase(base) {
			roots[d][f] = root
		}
	}
	return networkpolicy.New(networkpolicy.Config{LegacyNetpol: s.config.LegacyNetpol, Budget: s.limits,
		Sharding: sharding}, s.index, s.tables, base, roots)
}

// base renders the rules that every node has.
func (s *state) base() *rules.Base {
	b := &rules.Base{PodInterface: s.config.PodInterface, BridgePort: s.config.BridgePort, Uplinks: s.uplinks,
		Hooked: s.config.ForwardJump, AllowAction: s.config.AllowAction, AllowMcast: s.config.AllowMcast,
		Helpers: s.config.Helpers, NFLogGroup: s.config.NFLogGroup, TCPLiberal: s.config.TCPLiberal,
		TerminateMark: rules.TerminateMark(s.config.TerminateMark), LateMark: rules.TerminateMark(s.config.LateMark),
		DNSQueue: s.config.DNSQueue, DNSResolvers: len(s.config.DNSResolvers) > 0, ActiveTiers: s.activeTiers}
	if s.endsLate {
		b.TerminateMark = b.LateMark
	}
	return b
}

// facts returns what the fail-closed filter depends on.
func (s *state) facts() failclosed.Facts {
	n, selected := s.isolation.Counts(), s.tiers.Counts()
	f := failclosed.Facts{Now: s.now(), Synced: s.synced, Missing: s.input.missing(),
		Policies: n.Policies + selected.Policies, Isolated: n.Isolated}
	for d := range npc.Directions {
		f.Isolated[d] += selected.Denied[d]
	}
	return f
}

// weight returns the weight of a pod's event in a plan, or of a namespace's if p is nil. One that may change which
// cluster network policies choose local pods, and who their peers are at once, has a plan of its own while there are
// such policies, because what one event may have dropped in between is little.
func (s *state) weight(p *npc.Pod) int {
	if !s.tiers.Any() {
		return 1
	}
	if p != nil {
		if old := s.index.Pod(p.Namespace, p.Name); old == nil || !old.Local() || old.LabelledAs(p) {
			return 1
		}
	}
	return maxWeight
}

func (s *state) setPod(p npc.Pod) {
	if old := s.index.Pod(p.Namespace, p.Name); old != nil && old.UID != p.UID {
		s.endPod(old)
	}
	s.follow(s.index.SetPod(p))
}

func (s *state) deletePod(namespace, name string, uid types.UID) {
	if p := s.index.Pod(namespace, name); p != nil && (uid == "" || p.UID == uid) {
		s.endPod(p)
	}
}

// endPod removes a pod. The addresses of one that is isolated and has not finished stay closed, because its containers
// may still run.
func (s *state) endPod(p *index.Pod) {
	change := s.index.DeletePod(p)
	for _, t := range change.Transfers {
		if change.WasLocal && t.From == p {
			s.failClosed.Vanish(t.Addr, p, s.policies.of(p), s.now())
		}
	}
	if change.WasLocal {
		s.failClosed.VanishUnlisted(p, s.policies.of(p), s.now())
	}
	s.follow(change)
}

// follow updates everything after an event, with what became of the index by it: which pods policies select, the
// addresses that changed hands, the rules, and the sets that pods are in, once for each pod.
func (s *state) follow(change index.Change) {
	s.edited = s.edited || change.Edited
	if change.Reselected {
		s.isolation.Reselect(change.Pod)
		s.tiers.Reselect(change.Pod)
	}
	for _, t := range change.Transfers {
		s.transfer(t)
	}
	pods := append(s.isolation.Assign(), s.tiers.Assign()...)
	s.rebase()
	for _, p := range change.Affected() {
		if !slices.Contains(pods, p) {
			pods = append(pods, p)
		}
	}
	for _, p := range pods {
		s.placePod(p)
	}
	s.isolation.Prune()
	s.tiers.Prune()
	if named := s.activeTiers.Names != ""; s.synced && (named || s.named) {
		s.named = named
		s.names.Follow(clusterpolicy.NamesOf(s.tiers))
	}
}

// rebase has the base's chains jump to the tiers that have lists.
func (s *state) rebase() {
	if activeTiers := s.tiers.ActiveTiers(); activeTiers != s.activeTiers {
		s.activeTiers = activeTiers
		s.setBase()
	}
}

// setBase renders the base's chains again.
func (s *state) setBase() {
	base := s.base()
	s.isolation.SetBase(base)
	s.tiers.SetBase(base)
	for _, t := range s.tables {
		t.Chains.SetBase(base)
	}
}

// placePod brings the sets up to date that a pod's addresses are in, and those of the owners of addresses that it
// contests.
func (s *state) placePod(p *index.Pod) {
	for _, q := range append(s.index.Addresses.Conflicting(p), p) {
		contested := s.policies.contested(q)
		s.members = s.isolation.Memberships(q, s.tiers.Of(q).Baseline, contested, s.members[:0])
		s.members = s.tiers.Memberships(q, s.isolation.Of(q), contested, s.members)
		s.members = s.failClosed.Memberships(q, s.members)
		s.members = s.index.Place(q, s.members)
		s.failClosed.Follow(q, s.policies.of(q))
	}
}

func (s *state) placeAll() {
	for p := range s.index.Pods() {
		s.placePod(p)
	}
}

func (s *state) setPolicy(p *networkpolicy.Policy) {
	s.isolation.SetPolicy(p)
	s.follow(index.Change{})
}

func (s *state) deletePolicy(namespace, name string, uid types.UID) {
	s.isolation.DeletePolicy(namespace, name, uid)
	s.follow(index.Change{})
}

// reconcileBudget enforces the policies that fit into the limits.
func (s *state) reconcileBudget() {
	if s.isolation.ReconcileBudget() {
		s.follow(index.Change{})
	}
}

// followNamespace has everything follow a change of a namespace that the index took.
func (s *state) followNamespace(name string, change index.NamespaceChange) {
	s.edited = true
	s.isolation.Refit(change.Refit)
	s.tiers.UpdateNamespace(name)
	if change.DefaultDeny {
		s.isolation.Reisolate(name)
	}
	s.follow(index.Change{})
}

func (s *state) setNodeAddrs(addrs []netip.Addr) {
	s.edited = true
	s.follow(s.index.SetNodeAddrs(addrs))
}

func (s *state) setRanges(ranges []netip.Prefix) {
	if s.failClosed.Ranges.Set(ranges) {
		s.placeAll()
	}
}

func (s *state) setUplinks(ports []string, behind, here []netip.Prefix) {
	s.failClosed.Ranges.SetUplinks(len(ports) > 0, behind, here)
	if slices.Equal(s.uplinks, ports) {
		return
	}
	s.uplinks = slices.Clone(ports)
	s.setBase()
	s.placeAll()
}

// setSynced records that all objects are known. What changed hands before was not followed.
func (s *state) setSynced() {
	s.synced, s.edited = true, true
	s.late.synced = true
	for _, t := range s.tables {
		t.Flows.Clear()
		s.findReassigned(t)
	}
	s.isolation.SetSynced()
	s.follow(index.Change{})
}

// stale reports whether the kernel may need a transaction. Most changes of pods concern no policy.
func (s *state) stale() bool {
	return s.failClosed.Stale(s.facts()) || slices.ContainsFunc(s.tables[:], (*dataplane.Table).Stale)
}

// unfinished reports whether the last plan left rules that the next one removes.
func (s *state) unfinished() bool {
	return slices.ContainsFunc(s.tables[:], (*dataplane.Table).Unfinished)
}
