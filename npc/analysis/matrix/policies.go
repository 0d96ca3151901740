package matrix

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// writer makes the document of a view.
type writer struct {
	document
	// labels are the keys that selectors of pods and of namespaces name.
	labels map[string]bool
	known  map[string]int // JSON of an item of a list -> its number
}

// number returns the number of an item in a list that holds equal ones once.
func number[T any](w *writer, list *[]T, kind string, item T) int {
	text, _ := json.Marshal(item) // texts and numbers, which can be written
	key := kind + string(text)
	n, ok := w.known[key]
	if !ok {
		n = len(*list)
		w.known[key] = n
		*list = append(*list, item)
	}
	return n
}

func (w *writer) selector(s *policy.Selector) *int {
	if s == nil {
		return nil
	}
	out := &selector{}
	_, possible := s.Unmet(nil)
	out.Nothing = !possible
	if s.Selector != nil {
		all, _ := s.Requirements()
		for _, r := range all {
			w.labels[r.Key()] = true
			text := r.String()
			switch r.Operator() {
			case selection.Exists:
				text = "a label " + r.Key()
			case selection.DoesNotExist:
				text = "no label " + r.Key()
			}
			out.Requires = append(out.Requires, requirement{r.Key(), string(r.Operator()), r.ValuesUnsorted(), text})
		}
	}
	n := number(w, &w.Selectors, "selector", out)
	return &n
}

func (w *writer) peer(p policy.Peer) int {
	out := peer{}
	switch {
	case p.Block != nil:
		out.Block = p.Block.CIDR.String()
		for _, e := range p.Block.Except {
			out.Except = append(out.Except, e.String())
		}
	case p.Nodes != nil:
		out.Nodes = w.selector(p.Nodes)
	case p.Name != "":
		out.Name = p.Name
	case !p.IsUnknown():
		if out.Namespaces = w.selector(p.Namespaces); out.Namespaces == nil {
			out.Own = p.Namespace
		}
		out.Pods = w.selector(p.Pods)
	}
	return number(w, &w.Peers, "peer", out)
}

func (w *writer) rule(r policy.Rule) (out numberedRule) {
	for _, p := range r.Peers {
		out.Peers = append(out.Peers, w.peer(p))
	}
	for _, p := range r.Ports {
		out.Ports = append(out.Ports,
			number(w, &w.Ports, "port", port{p.Protocol, p.First, p.Last, p.Name, p.String()}))
	}
	return out
}

// policies writes the policies down, and where the page finds each.
func (w *pods) policies() {
	for i, p := range w.view.Policies {
		w.numbers[p] = i
		out := networkPolicy{Key: p.Key()}
		if p.Invalid != nil {
			out.Invalid = p.Invalid.Error()
		}
		for _, d := range npc.Directions {
			for _, r := range p.Rules[d] {
				out.Rules[d] = append(out.Rules[d], w.rule(r))
			}
		}
		w.Policies = append(w.Policies, out)
	}
	for i, p := range w.view.ClusterPolicies {
		w.clusterNumbers[p] = i
		out := clusterPolicy{Name: p.Name, Tier: p.Tier.String(), Priority: p.Priority}
		for _, d := range npc.Directions {
			for i, r := range p.Written[d] {
				out.Rules[d] = append(out.Rules[d], w.clusterRule(p, i, r))
			}
		}
		w.Cluster = append(w.Cluster, out)
		w.addLabels(p.Pods)
		w.addLabels(p.Namespaces)
	}
}

func (w *writer) addLabels(s policy.Selector) {
	for _, k := range s.Keys() {
		w.labels[k] = true
	}
}

func (w *writer) clusterRule(p *policy.Cluster, i int, r policy.WrittenRule) orderedRule {
	out := orderedRule{numberedRule: w.rule(r.Rule), Action: r.Action.String()}
	// Explain knows how a name, which may be any text, stands in a sentence.
	by := explain.Decision{Tier: p.Tier.String(), Policy: p.Name, Rule: i + 1}
	plain := by.String()
	by.Name = r.Name
	out.Name = strings.TrimPrefix(by.String(), plain)
	if r.Invalid != nil {
		out.Invalid = r.Invalid.Error()
	}
	return out
}
