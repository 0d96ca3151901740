package dataplane_test

import (
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// TestLoadLeavesWhatIsOthers: what was found goes, if it is ours or that of the original weave-npc, and of the family.
func TestLoadLeavesWhatIsOthers(t *testing.T) {
	old := naming.Set(npc.IPv4, "old")
	set := func(name string, typ ipset.Type, f ipset.Family, members ...string) ipset.Listing {
		l := ipset.Listing{Header: ipset.Header{Set: ipset.Set{Name: name, Type: typ, Family: f}}}
		for _, m := range members {
			l.Members = append(l.Members, ipset.Element{Entry: ipset.Member(m)})
		}
		return l
	}
	of4, of6, theirs := naming.Set(npc.IPv4, "4"), naming.Set(npc.IPv6, "6"), "theirs"
	empty, list6 := naming.Set(npc.IPv4, "empty"), naming.Set(npc.IPv6, "list")
	found := []ipset.Listing{set(old, ipset.HashIP, ipset.IPv4), set(of4, ipset.HashIP, ipset.IPv4), set(of6, ipset.HashIP, ipset.IPv6),
		set(theirs, ipset.HashIP, ipset.IPv4), set(empty, ipset.ListSet, 0), set(list6, ipset.ListSet, 0, of6),
		set("weave-?b%zl9GIe0AET1(QI^7NWe*fO", ipset.HashIP, ipset.IPv4)}
	tables := dataplane.NewTables()
	var all [2]string
	for f, n := range tables {
		n.Sets.AddFixed(naming.LocalPods, ipset.HashIP, "local pods")
		if n.Sets.Loaded() {
			t.Error("they are loaded before they are")
		}
		n.LoadSets(found)
		n.LoadChains(iptables.Seen{Chains: map[string]iptables.SeenChain{"WEAVE-NPC-I-0": {}}})
		for range 2 {
			tx := n.Plan(dataplane.Options{CollectGarbage: true})
			n.Commit(tx, tx.Taken())
			all[f] += tx.String()
		}
		if !n.Sets.Loaded() || n.Active() {
			t.Error("it is not known what is known")
		}
	}
	n := &node{T: t}
	n.expect(all[npc.IPv4], "+destroy "+old+"\n", "+destroy "+of4+"\n", "+destroy "+empty, "+-X WEAVE-NPC-I-0", "-destroy "+of6, "-theirs", "-"+list6, "-destroy "+theirs)
	n.expect(all[npc.IPv6], "+destroy "+of6+"\n", "+destroy "+list6, "+-X WEAVE-NPC-I-0", "-"+of4, "-"+empty)
}

// TestAListFindsItsFamily: a list that was found has none, and went to the wrong table.
func TestAListFindsItsFamily(t *testing.T) {
	name, peer := naming.Set(npc.IPv6, "list"), naming.Set(npc.IPv6, "peer")
	tables := dataplane.NewTables()
	for _, n := range tables {
		n.Activate()
		n.LoadSets([]ipset.Listing{{Header: ipset.Header{Set: ipset.Set{Name: name, Type: ipset.ListSet}}}})
	}
	n := &node{T: t}
	n.expect(tables[npc.IPv4].Plan(dataplane.Options{}).String(), "-"+name)
	tables[npc.IPv6].Sets.Add(peer, ipset.HashIP, "peer").Drop()
	s := tables[npc.IPv6].Sets.Add(name, ipset.ListSet, "list")
	s.Add(ipset.Member(peer), ipset.Attr{})
	n.expect(tables[npc.IPv6].Plan(dataplane.Options{}).String(), "-create "+name, "+add "+name+" "+peer)
	n.expect(tables[npc.IPv4].Plan(dataplane.Options{CollectGarbage: true}).String(), "-"+name)
	if s.Family() != npc.IPv6 {
		t.Error("it is of the wrong family")
	}
}

// TestAnotherLayoutIsRewritten: what the sets and chains of another version mean is not known.
func TestAnotherLayoutIsRewritten(t *testing.T) {
	n := newNode(t)
	n.carryOut()
	sets, seen := n.kernel.Read()
	seen.Chains[naming.LayoutPrefix+"0"] = seen.Chains[naming.LayoutPrefix+naming.Layout]
	delete(seen.Chains, naming.LayoutPrefix+naming.Layout)
	n.LoadChains(seen)
	n.LoadSets(sets)
	if found := n.Chains.ForeignLayout(); found != "0" {
		t.Errorf("the layout is %q", found)
	}
	n.ResolveNames(false)
	tx := n.Plan(dataplane.Options{})
	n.expect(tx.String(), "+create "+naming.Set(npc.IPv4, "instead of", "weave-local-pods"), "-create "+shopPods, "+-X "+naming.LayoutPrefix+"0")
	names := make([]string, 0, len(tx.Rules.Replace))
	for _, c := range tx.Rules.Replace {
		names = append(names, c.Name)
	}
	if !slices.Contains(names, shopChain) || !slices.Contains(names, naming.MainChain) {
		t.Errorf("rewritten: %q", names)
	}
	delete(seen.Chains, naming.LayoutPrefix+"0")
	n.LoadChains(seen)
	if found := n.Chains.ForeignLayout(); found != "" {
		t.Errorf("without a marker the layout is %q", found)
	}
}

// TestWhatIsLoadedAgain: sets and chains that another process removed, or added, while they are desired or no more.
func TestWhatIsLoadedAgain(t *testing.T) {
	n := newNode(t)
	n.carryOut()
	n.dropPolicy()
	delete(n.kernel.Sets, peersName)
	delete(n.kernel.Chains, shopChain)
	delete(n.kernel.Sets, shopPods)
	delete(n.kernel.Sets, "weave-local-pods")
	n.load()
	n.Chains.DropTexts()
	n.Chains.DropTexts()
	n.load()
	if left := n.Leftovers(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if text := n.Chains.About(shopChain) + n.Chains.About(naming.EgressChain); text != "packets from local pods" {
		t.Errorf("the chains are %q", text)
	}
	n.expect(n.Plan(dataplane.Options{}).String(), "+create weave-local-pods", "+add weave-local-pods 10.32.1.2", "-"+peersName, "-"+shopChain)
	sets, entries, chains, rules := n.Size()
	if sets != 8 || entries != 0 || chains != len(n.kernel.Chains)-3 || rules == 0 {
		t.Errorf("there are %d sets with %d entries and %d chains with %d rules", sets, entries, chains, rules)
	}
}

// TestWhoAsksFindsSets: those that are desired, and those of pods.
func TestWhoAsksFindsSets(t *testing.T) {
	n := newNode(t)
	n.carryOut()
	n.peers.Drop()
	var wanted, ofPods []string
	for s := range n.Sets.Wanted() {
		wanted = append(wanted, s.Name)
	}
	for s := range n.Sets.OfPods() {
		ofPods = append(ofPods, s.Name)
	}
	if slices.Contains(wanted, peersName) || !slices.Contains(wanted, "weave-local-pods") || len(wanted) != 10 {
		t.Errorf("wanted: %q", wanted)
	}
	if !slices.Contains(ofPods, peersName) || len(ofPods) != 2 {
		t.Errorf("of pods: %q", ofPods)
	}
	for range n.Sets.Wanted() {
		break
	}
	for range n.Sets.OfPods() {
		break
	}
}
