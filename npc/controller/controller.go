// Package controller turns namespaces, pods and network policies, as they come, into what the node's ipsets and iptables chains are to
// be, and plans the transactions that lead there.
//
// It reads no API server and touches no kernel: a source calls its Set and Delete methods, and the syncer asks for plans and tells
// what became of them. Its Controller has the only lock.
//
//	c := controller.New(npc.Config{NodeName: "node1"})
//	c.SetPod(pod)                                 // as often as anything changes
//	<-c.Wake()                                    // there may be something to plan
//	for _, tx := range c.Plan(false, known) {
//		c.Commit(tx, apply(tx))
//	}
package controller

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/claims"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/queue"
	"github.com/weave-npc/weave-npc/npc/rules"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Controller is what the node needs, in memory: it takes objects as they are, in any order and any
// number of times, and knows at any moment what is to be done to the kernel. Nothing in it fails.
// Its methods may be called by several goroutines.
type Controller struct {
	npc.Config
	now  func() time.Time
	wake chan struct{}

	mu      sync.Mutex
	texts   texts
	members []membership // memory to find a pod's memberships in
	synced  bool
	missing npc.Missing
	// recalled is set once it was found what the kernel tells of pods that vanished.
	recalled   [len(traffic.Families)]bool
	namespaces map[string]*namespace        // name -> state
	claims     claims.Table[*pod]           // who owns which address
	hosts      map[netip.Addr]int           // address of a node -> pods that name it
	nodeAddrs  map[netip.Addr]struct{}      // addresses of this node
	localAddrs map[netip.Addr]struct{}      // addresses that local pods own
	selectors  map[string]*selector         // naming.Hash of the spec -> selector
	cluster    selectorSet                  // selectors of clusterScope
	spaces     map[string]*spaces           // text of a selector of namespaces -> what it matches
	blocks     map[string]*block            // naming.Hash of the spec -> block
	unions     map[string]*union            // naming.Hash of its members -> union
	invalid    map[string]npc.InvalidPolicy // key -> policy that could not be compiled
	unreported map[string]npc.InvalidPolicy // those of them that have not been reported yet
	broken     map[string]time.Time         // kind of objects -> when its watch broke
	ranges     []netip.Prefix               // the node's ranges of pod addresses
	uplinks    []string                     // ports of the pods' bridge that lead to no pod of this node
	pending    [len(traffic.Directions)]map[*pod]struct{}
	// policyCount is the number of policies in the cluster.
	policyCount int
	// budget has those with rules for local pods.
	budget *budget.Ledger
	// isolatedPods counts the local pods that are isolated.
	isolatedPods [len(traffic.Directions)]int
	gates        gates

	tables       [len(traffic.Families)]*dataplane.Table
	podRange     [len(traffic.Families)]*dataplane.Set
	behind       [len(traffic.Families)]*dataplane.Set // nil until the pods' bridge has an uplink
	defaultAllow [len(traffic.Families)][len(traffic.Directions)]*dataplane.Set
	ways         [len(traffic.Directions)]*way
	// partTargets is the constant, but in tests.
	partTargets int

	// batch is the kind of the changes since the last plan, and weight what they weigh together; planned is the kind of those before.
	// later holds the changes that must not be planned with them.
	batch, planned queue.Kind
	weight         int
	later          queue.Queue
	// inFlight reports that a plan was made and Resume not called since.
	inFlight bool
	// changedAt is when the first change came that no plan was made for yet, plannedAt the first that the kernel may not hold yet; zero
	// if there is none.
	changedAt, plannedAt time.Time
}

// New returns a model that knows no object.
func New(c npc.Config) *Controller {
	m := &Controller{
		Config:      c,
		partTargets: partTargets,
		now:         time.Now,
		wake:        make(chan struct{}, 1),
		namespaces:  map[string]*namespace{},
		hosts:       map[netip.Addr]int{},
		localAddrs:  map[netip.Addr]struct{}{},
		selectors:   map[string]*selector{},
		spaces:      map[string]*spaces{},
		blocks:      map[string]*block{},
		unions:      map[string]*union{},
		invalid:     map[string]npc.InvalidPolicy{},
		unreported:  map[string]npc.InvalidPolicy{},
		broken:      map[string]time.Time{},
		pending:     [len(traffic.Directions)]map[*pod]struct{}{{}, {}},
		gates:       gates{vanished: map[netip.Addr]vanished{}},
	}
	m.claims = claims.Table[*pod]{Refused: m.refused, Rather: func(a, b *pod) bool { return npc.OwnsRather(&a.Pod, &b.Pod, m.NodeName) }}
	m.budget = budget.NewLedger(cmp.Or(c.Budget, budget.Default()))
	m.tables = dataplane.NewTables()
	for _, d := range traffic.Directions {
		m.ways[d] = &way{direction: d, crowd: crowd, branches: map[string]*branch{}}
	}
	for f, t := range m.tables {
		m.podRange[f] = t.Sets.AddFixed(naming.PodRange, ipset.HashNet, "the node's range of pod addresses")
		m.gates.broadcast[f] = t.Sets.AddFixed(naming.Broadcast, ipset.HashNet, "every address while broadcast is dropped")
		for _, d := range traffic.Directions {
			m.defaultAllow[f][d] = t.Sets.AddFixed(naming.DefaultAllow(d), ipset.HashIP,
				"local pods that no policy isolates, "+d.String())
			m.gates.sets[f][d] = t.Sets.AddFixed(naming.Gate(d), ipset.HashNet, "unknown addresses that are dropped, "+d.String())
		}
		for d, root := range t.Chains.AddBase(m.base(nil)) {
			m.ways[d].root[f] = root
		}
	}
	m.setRanges(c.PodRanges)
	return m
}

// Wake receives when there may be something to plan. Bursts of changes make it receive once.
func (m *Controller) Wake() <-chan struct{} { return m.wake }

func (m *Controller) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// SetSynced records that all objects are known that there were at the start.
func (m *Controller) SetSynced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = true
	for _, f := range traffic.Families {
		m.tables[f].Flows.Clear()
		m.findChangedHands(f)
		m.findVanished(f)
	}
	m.settleBudget()
	m.batch, m.inFlight = queue.None, false
	m.wakeUp()
}

// Synced reports whether SetSynced was called.
func (m *Controller) Synced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced
}

// change applies a change to the model. Once in operation, changes of policies and changes of pods do not
// share a plan: between its steps a new member would meet an old rule, which opens what both states deny. Nor does a
// plan have more of them than one transaction should carry.
func (m *Controller) change(e queue.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.synced {
		m.batch = e.Kind
		e.Apply()
		m.wakeUp()
		return
	}
	now := time.Now()
	if m.mustWait(e) {
		m.later.Put(e, now)
	} else {
		e.Apply()
		if m.batch == queue.None && e.Kind == queue.Pods && m.nothingToPlan() {
			return
		}
		m.batch = e.Kind
		m.weight += e.Weight
	}
	if m.changedAt.IsZero() {
		m.changedAt = now
	}
	m.wakeUp()
}

// mustWait reports whether a change has to be queued. While a transaction is carried out all do: applied at once, changes of one kind
// would come before those of the other that wait.
func (m *Controller) mustWait(e queue.Event) bool {
	return m.inFlight || m.unfinished() || !m.later.Empty() ||
		m.batch != queue.None && (m.batch != e.Kind || m.weight+e.Weight > queue.MaxWeight)
}

// nothingToPlan reports whether the kernel needs no transaction. Most changes of pods are of what nobody asks for.
func (m *Controller) nothingToPlan() bool {
	m.setGates()
	return !slices.ContainsFunc(m.tables[:], (*dataplane.Table).Stale)
}

// LoadSets takes over the sets that were read from the kernel for a family. It and LoadChains are to be called before
// the first plan, and whenever it is not known what the kernel took of a transaction, or others changed it.
func (m *Controller) LoadSets(f traffic.Family, sets []ipset.Listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables[f].LoadSets(sets)
	if m.synced {
		m.findChangedHands(f)
		m.findVanished(f)
	}
}

// LoadChains does the same with the chains that were read.
func (m *Controller) LoadChains(f traffic.Family, seen iptables.Seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables[f].LoadChains(seen)
}

// ForeignLayout returns the layout of a family's sets and chains as they were last loaded, if it is another
// version's; else empty. Such are rewritten: what their sets mean is not known.
func (m *Controller) ForeignLayout(f traffic.Family) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tables[f].Chains.ForeignLayout()
}

// Resume reports whether another plan is due now that one was carried out: it had to leave something, or changes waited for it, of which the
// next are applied.
func (m *Controller) Resume() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight = false; m.unfinished() || m.batch != queue.None {
		return true
	}
	if m.changedAt.IsZero() { // an earlier plan took the time of all that had come by then
		m.changedAt = m.later.Oldest()
	}
	events := m.later.Take(m.planned)
	for _, e := range events {
		e.Apply()
		m.batch = e.Kind
		m.weight += e.Weight
	}
	if len(events) > 0 {
		return true
	}
	if m.missing == npc.NothingMissing && slices.ContainsFunc(m.tables[:], (*dataplane.Table).Holding) {
		m.release()
		return true
	}
	return false
}

// SetMissing sets what of the input is missing. What the kernel holds for it stays.
func (m *Controller) SetMissing(what npc.Missing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missing = what
	m.wakeUp()
}

// release ends keeping what was found.
func (m *Controller) release() {
	for f, t := range m.tables {
		t.Release()
		m.findChangedHands(traffic.Family(f))
		m.findVanished(traffic.Family(f))
	}
}

// HasGarbage reports whether a plan left sets or chains in the kernel that nothing uses any more.
func (m *Controller) HasGarbage() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.tables[:], (*dataplane.Table).Garbage)
}

// CarriedOut marks all planned changes as carried out. It returns when the first of them came; zero if there were none.
func (m *Controller) CarriedOut() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.plannedAt
	m.plannedAt = time.Time{}
	return at
}

// Waiting returns how long the oldest change has been waiting that the kernel may not hold yet.
func (m *Controller) Waiting() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting()
}

func (m *Controller) waiting() (longest time.Duration) {
	for _, at := range []time.Time{m.changedAt, m.plannedAt, m.later.Oldest()} {
		if !at.IsZero() {
			longest = max(longest, time.Since(at))
		}
	}
	return longest
}

// Unreported returns the invalid policies that were not returned before.
func (m *Controller) Unreported() []npc.InvalidPolicy {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]npc.InvalidPolicy, 0, len(m.unreported))
	for _, p := range m.unreported {
		out = append(out, p)
	}
	clear(m.unreported)
	return out
}

// base renders the rules that every node has, with some ports of the pods' bridge that lead to no pod of this node.
func (m *Controller) base(uplinks []string) *rules.Base {
	return &rules.Base{PodInterface: m.PodInterface, BridgePort: m.BridgePort, Uplinks: uplinks, Hooked: m.Hook == npc.HookForward,
		AllowAction: m.AllowAction, AllowMcast: m.AllowMcast, NFLogGroup: m.NFLogGroup, TCPLiberal: m.TCPLiberal}
}
