package reachability

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// Subject is what two cluster states are compared for: a pod, or Nodes or addresses outside that no policy of either
// state distinguishes, or an address that is taken for that of a domain name.
type Subject struct {
	// Pod is namespace/name; empty for addresses.
	Pod string
	// Nodes are the names of Nodes, and NodeAddrs their addresses. What a pod and its own node exchange is not
	// compared.
	Nodes     []string
	NodeAddrs []netip.Addr
	// Domain is the name, which connections go to alone.
	Domain string
	// In is set for the cluster states, before and after, that the subject is in.
	In [2]bool
	// Addr is one of the addresses, which stands for all, and Ranges are all of them if they are outside. Ranges that
	// no subject has lie between, where all addresses are those of pods or nodes.
	Addr   netip.Addr
	Ranges []Stretch
}

// Stretch is a range with the number of its place among all ranges of the family: the addresses between two with the
// numbers n and n+1 are free.
type Stretch struct {
	ipblock.Range
	Number int
}

const families = len(npc.Families)

// before and after are the cluster states, as indexes.
const (
	before = iota
	after
	states
)

// subjects are the subjects of two cluster states by classes: two of one class get the same verdicts in each state.
type subjects struct {
	all     []Subject
	omitted [states][]string // pods that own none of their addresses
	classes []subjectClass
	views   [states]*view
	// claimants are the pods that claim an address which is in no class with others.
	claimants [states]map[netip.Addr][]*npc.Pod
	taken     map[netip.Addr]bool // addresses that pods claim in either state
}

// subjectClass is subjects that no policy distinguishes.
type subjectClass struct {
	members []int
	in      [states]bool
	// ends are those of the first member, by cluster state and family. A pod without an address yet has one of each
	// family. An end is absent where has is not set.
	ends [states][families]End
	has  [states][families]bool
	// nodes is the number of a class of Nodes, from 1; 0 for pods and addresses. own are those where pods see only
	// their own node.
	nodes int
	own   []int
}

// alone reports whether the verdicts of a class have to be asked for one by one.
func (c *subjectClass) alone() bool {
	for w := range c.ends {
		if slices.ContainsFunc(c.ends[w][:], func(e End) bool { return e.Alone }) {
			return true
		}
	}
	return false
}

func newSubjects(of ...*cluster.View) *subjects {
	s := &subjects{taken: map[netip.Addr]bool{}}
	for w, v := range of {
		s.views[w] = newView(v, nil)
		s.claimants[w] = claimants(s.views[w])
		for _, p := range v.Pods {
			for _, a := range p.Claims() {
				s.taken[a] = true
			}
		}
	}
	ends := [states]map[string][]flow.End{{}, {}}
	var names []string
	for w, v := range of {
		for _, name := range v.PodNames("") {
			found := firstOfFamilies(v.OwnedEnds(name))
			if len(found) == 0 {
				s.omitted[w] = append(s.omitted[w], name)
				continue
			}
			if ends[w][name] = found; w == before || ends[before][name] == nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	nodes := s.nodes()
	s.addPods(names, ends, nodes)
	for i, n := range nodes {
		s.addAddress(n, i+1)
	}
	s.addOutside()
	return s
}

// claimants returns who claims the addresses that are in no class with others.
func claimants(v *view) map[netip.Addr][]*npc.Pod {
	all := map[netip.Addr][]*npc.Pod{}
	for _, p := range v.Pods {
		for _, a := range p.Addrs {
			if v.special[a] {
				all[a] = append(all[a], p)
			}
		}
	}
	return all
}

// firstOfFamilies returns the first end of each family. Kubernetes gives a pod no more.
func firstOfFamilies(ends []flow.End) (out []flow.End) {
	for _, e := range ends {
		if !slices.ContainsFunc(out, func(o flow.End) bool { return o.Addr.Is4() == e.Addr.Is4() }) {
			out = append(out, e)
		}
	}
	return out
}

// addPods adds pods by name. They must be sorted.
func (s *subjects) addPods(names []string, ends [states]map[string][]flow.End, nodes []Subject) {
	own := ownNodes{views: s.views, nodes: nodes, known: map[[states]string][]int{}}
	known := map[string]int{} // what policies see of a pod in both states -> its class
	for _, name := range names {
		var key strings.Builder
		subject := Subject{Pod: name}
		for w, v := range s.views {
			if found := ends[w][name]; found != nil {
				subject.In[w] = true
				v.writeKey(&key, v.Pods[name], found)
			}
			key.WriteByte(0)
		}
		onlyOwn := own.of(name, subject.In)
		fmt.Fprint(&key, onlyOwn)
		i, ok := known[key.String()]
		if !ok {
			i = len(s.classes)
			known[key.String()] = i
			c := subjectClass{in: subject.In, own: onlyOwn}
			for w, v := range s.views {
				c.addEnds(w, v, v.Pods[name], ends[w][name])
			}
			s.classes = append(s.classes, c)
		}
		s.classes[i].members = append(s.classes[i].members, len(s.all))
		s.all = append(s.all, subject)
	}
}

// addEnds adds the ends of a pod in one cluster state.
func (c *subjectClass) addEnds(state int, v *view, p *npc.Pod, ends []flow.End) {
	for _, e := range ends {
		made := End{End: e, namespace: p.Namespace}
		if !e.Addr.IsValid() {
			c.ends[state], c.has[state] = [families]End{made, made}, [families]bool{true, true}
			continue
		}
		made.Alone = v.special[e.Addr] || v.IsNodes(e.Addr)
		f := npc.FamilyOf(e.Addr)
		c.ends[state][f], c.has[state][f] = made, true
	}
}

// addOutside adds a subject for each class of addresses that no pod and no node has in either cluster state.
func (s *subjects) addOutside() {
	classes := ipblock.NewClasses(slices.Concat(s.views[before].blocks, s.views[after].blocks))
	var found []Subject
	at := map[int]int{} // class -> its subject
	number := 0
	for _, r := range classes.Ranges() {
		a, ok := r.Unicast(s.isFree)
		if !ok {
			continue
		}
		number++
		class := classes.Of(a)
		if _, known := at[class]; !known {
			at[class] = len(found)
			found = append(found, Subject{In: [states]bool{true, true}, Addr: a})
		}
		of := &found[at[class]]
		of.Ranges = append(of.Ranges, Stretch{r, number})
	}
	for _, of := range found {
		s.addAddress(of, 0)
	}
	learned := s.views[before].Learned
	for _, a := range slices.SortedFunc(maps.Keys(learned), netip.Addr.Compare) {
		s.addAddress(Subject{In: [states]bool{true, true}, Addr: a, Domain: learned[a][0]}, 0)
	}
}

// isFree reports whether no pod, no node and no domain name has an address in either cluster state.
func (s *subjects) isFree(a netip.Addr) bool {
	for _, v := range s.views {
		if v.IsNodes(a) || len(v.NodesAt(a)) > 0 || len(v.Learned[a]) > 0 {
			return false
		}
	}
	return !s.taken[a]
}

// addAddress adds a subject that is addresses: Nodes of a number, or such outside.
func (s *subjects) addAddress(of Subject, nodes int) {
	e := End{End: flow.End{Addr: of.Addr}}
	c := subjectClass{members: []int{len(s.all)}, in: [states]bool{true, true}, nodes: nodes}
	for w := range c.ends {
		c.ends[w][npc.FamilyOf(of.Addr)], c.has[w][npc.FamilyOf(of.Addr)] = e, true
	}
	s.classes = append(s.classes, c)
	s.all = append(s.all, of)
}
