package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// Set is workloads, and addresses outside.
type Set struct {
	// Text names all of them in a line, in fewer words where there are many.
	Text      string   `json:"text"`
	Workloads []Member `json:"workloads,omitempty"`
	Nodes     []string `json:"nodes,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// DomainNames are names of policies, whichever addresses they have.
	DomainNames []string `json:"domain_names,omitempty"`
}

// Member is a workload, or some of its pods.
type Member struct {
	Namespace string `json:"namespace"`
	// Workload is the kind and the name, as Deployment/web, or Pod/web if nothing makes the pod.
	Workload string `json:"workload"`
	// Pods are the names of the pods of the set, if these are not all of the workload's pods; All counts all.
	Pods []string `json:"pods,omitempty"`
	All  int      `json:"all_pods"`
	// State is new or gone if the pods of the set are in one of the cluster states only.
	State state `json:"state,omitempty"`

	text   string
	number int
	// alone is set for a pod that has no connections with itself.
	alone bool
}

// set returns the workloads and addresses of a part that have connections with others of the other part.
func (n *names) set(p, other part) (out Set) {
	only, inside := n.alone(other)
	members := make([][]int, len(n.workloads))
	var outside []reachability.Stretch
	for _, number := range p.numbers {
		for _, s := range p.members[number] {
			if s == only || !inside && n.of[s] < 0 {
				continue
			}
			if w := n.of[s]; w >= 0 {
				members[w] = append(members[w], s)
			} else {
				outside = append(outside, n.Subjects[s].Ranges...)
				if name := n.Subjects[s].Domain; name != "" {
					out.DomainNames = append(out.DomainNames, name)
				}
				out.Nodes = append(out.Nodes, n.Subjects[s].Nodes...)
			}
		}
	}
	for w, subjects := range members {
		if len(subjects) > 0 {
			out.Workloads = append(out.Workloads, n.member(w, subjects))
		}
	}
	out.Addresses = ranges(outside)
	slices.Sort(out.Nodes)
	out.Nodes = slices.Compact(out.Nodes)
	slices.Sort(out.DomainNames)
	texts := append(n.workloadTexts(out.Workloads), nodeTexts(out.Nodes)...)
	texts = append(texts, someTexts(out.DomainNames, "domain names")...)
	texts = append(texts, someTexts(out.Addresses, "ranges")...)
	out.Text = spelling.List(texts)
	return out
}

// someTexts returns texts of a kind, and how many more there are if they are too many.
func someTexts(all []string, kind string) []string {
	if more := len(all) - maxNamed; more > 1 {
		return append(slices.Clone(all[:maxNamed]), fmt.Sprintf("%d more %s", more, kind))
	}
	return all
}

// member returns some pods of a workload.
func (n *names) member(at int, subjects []int) Member {
	w := &n.workloads[at]
	m := Member{Namespace: w.namespace, Workload: w.kind + "/" + w.name, All: len(w.subjects), text: w.short,
		number: at, alone: len(subjects) == 1 && !n.several[subjects[0]]}
	states := map[state]bool{}
	for _, s := range subjects {
		states[stateOf(&n.Subjects[s])] = true
	}
	if len(states) == 1 {
		m.State = stateOf(&n.Subjects[subjects[0]])
	}
	if len(subjects) < len(w.subjects) {
		slices.Sort(subjects)
		for _, s := range subjects {
			_, name, _ := strings.Cut(n.Subjects[s].Pod, "/")
			m.Pods = append(m.Pods, name)
		}
		shown := strings.Join(m.Pods[:min(2, len(m.Pods))], ", ")
		if len(m.Pods) > 2 {
			shown += ", ..."
		}
		m.text = fmt.Sprintf("%d of %d pods of %s (%s)", len(subjects), len(w.subjects), w.short, shown)
	}
	if m.State != isInBoth {
		m.text += fmt.Sprintf(" (%s)", m.State)
	}
	return m
}

const (
	// maxNamed is how many workloads, namespaces or ranges a text names.
	maxNamed = 6
	// maxExcept is how many workloads a text names as exceptions from all.
	maxExcept = 3
)

// workloadTexts returns texts for workloads: all of them, all but a few, all of a namespace, or each.
func (n *names) workloadTexts(members []Member) (texts []string) {
	if text, ok := n.allExcept(members, 0, len(n.workloads), ""); ok {
		return []string{text}
	}
	whole := 0 // workloads of namespaces that are named whole and do not fit
	var more []string
	for len(members) > 0 {
		end := slices.IndexFunc(members, func(m Member) bool { return m.Namespace != members[0].Namespace })
		if end < 0 {
			end = len(members)
		}
		of := members[:end]
		members = members[end:]
		first := of[0].number
		for first > 0 && n.workloads[first-1].namespace == of[0].Namespace {
			first--
		}
		if text, ok := n.allExcept(of, first, n.spaces[of[0].Namespace], " of "+of[0].Namespace); ok {
			if len(texts) >= maxNamed {
				whole += len(of)
				more = append(more, text)
				continue
			}
			texts = append(texts, text)
			continue
		}
		for _, m := range of {
			if len(texts) >= maxNamed {
				whole++
				more = append(more, m.text)
				continue
			}
			texts = append(texts, m.text)
		}
	}
	if len(more) == 1 {
		return append(texts, more...)
	}
	if whole > 0 {
		texts = append(texts, fmt.Sprintf("%d more workloads", whole))
	}
	return texts
}

// allExcept returns a text for members that are all of some workloads, or all but a few; ok is false if they are not,
// or there are too few.
func (n *names) allExcept(members []Member, first, count int, of string) (text string, ok bool) {
	var except []string
	states, next := map[state]int{}, 0
	for i := first; i < first+count; i++ {
		if next < len(members) && members[next].number == i && len(members[next].Pods) == 0 {
			states[members[next].State]++
			next++
			continue
		}
		if next < len(members) && members[next].number == i {
			return "", false // some of its pods
		}
		if except = append(except, n.workloads[i].short); len(except) > maxExcept {
			return "", false
		}
	}
	if count < 2 || len(except) > 0 && count < 4*(len(except)+1) {
		return "", false
	}
	text = fmt.Sprintf("all %d workloads%s", count, of)
	var some []string
	for _, s := range []state{isNew, isGone} {
		if states[s] > 0 {
			some = append(some, fmt.Sprintf("%d %s", states[s], s))
		}
	}
	if len(some) > 0 {
		text += " (" + strings.Join(some, ", ") + ")"
	}
	if len(except) > 0 {
		text += " except " + spelling.List(except)
	}
	return text, true
}

// nodeTexts returns a text for nodes, if there are any.
func nodeTexts(names []string) []string {
	switch {
	case len(names) == 0:
		return nil
	case len(names) == 1:
		return []string{"node " + names[0]}
	case len(names) > maxExcept:
		return []string{fmt.Sprintf("%d nodes (%s, ...)", len(names), strings.Join(names[:2], ", "))}
	}
	return []string{"nodes " + spelling.List(names)}
}

// ranges returns ranges of addresses as texts. Those between which nothing is that could be asked about are one.
func ranges(all []reachability.Stretch) (texts []string) {
	slices.SortFunc(all, func(a, b reachability.Stretch) int { return a.First.Compare(b.First) })
	for i := 0; i < len(all); {
		r := all[i]
		for i++; i < len(all) && all[i].Number == r.Number+1 && all[i].First.Is4() == r.First.Is4(); i++ {
			r.Last, r.Number = all[i].Last, all[i].Number
		}
		texts = append(texts, rangeText(r.Range))
	}
	return texts
}

// rangeText returns a range as a CIDR, if it is one, or by its ends.
func rangeText(r ipblock.Range) string {
	if p, is := r.Prefix(); is {
		return p.String()
	}
	return r.String()
}

// Pairs calls found with the texts of each of some ends and each of others that may be connected.
func Pairs(from, to *Set, found func(from, to string)) {
	sources, destinations := from.ends(), to.ends()
	for _, a := range sources {
		for _, b := range destinations {
			if a != b && (!a.outside || !b.outside) || a == b && !a.alone {
				found(a.text, b.text)
			}
		}
	}
}

// oneEnd is a workload, a node or a range of addresses.
type oneEnd struct {
	text string
	// alone is set if it has no connections with itself. No connection has two ends that are outside.
	alone, outside bool
}

func (s *Set) ends() (out []oneEnd) {
	for _, m := range s.Workloads {
		out = append(out, oneEnd{text: m.text, alone: m.alone})
	}
	for _, n := range s.Nodes {
		out = append(out, oneEnd{"node " + n, true, true})
	}
	for _, a := range slices.Concat(s.DomainNames, s.Addresses) {
		out = append(out, oneEnd{a, true, true})
	}
	return out
}
