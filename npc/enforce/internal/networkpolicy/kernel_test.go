package networkpolicy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// kernel is what would be written to an empty kernel of one family.
type kernel struct {
	text string
	// members are the pods in a set by their names, and rules those of a chain, in order.
	members map[string][]string
	rules   map[string][]rule
	// about describes sets.
	about map[string]string
}

// rule is one iptables rule.
type rule struct{ match, comment, target string }

var (
	addLine  = regexp.MustCompile(`^add (\S+) \S+ comment "(?:\S+ )?(\S+)"$`)
	ruleLine = regexp.MustCompile(`^-A (\S+) (.*?) ?-m comment --comment "\S+ ([^"]*)" (-[gj] \S+)`)
	setMatch = regexp.MustCompile(`-m set --match-set (\S+) (\S+)`)
)

// kernel returns what a plan would write to an empty kernel.
func (w *harness) kernel(f npc.Family) kernel {
	w.tables[f].Activate()
	k := kernel{text: w.tables[f].Plan(dataplane.Options{}).String(), members: map[string][]string{}, rules: map[string][]rule{},
		about: map[string]string{}}
	for line := range strings.SplitSeq(k.text, "\n") {
		if m := addLine.FindStringSubmatch(line); m != nil {
			k.members[m[1]] = append(k.members[m[1]], m[2])
		} else if m := ruleLine.FindStringSubmatch(line); m != nil {
			k.rules[m[1]] = append(k.rules[m[1]], rule{m[2], m[3], m[4]})
		}
	}
	for _, use := range w.index.Sets.Uses() {
		k.about[use.Set.Name] = use.Set.About()
	}
	return k
}

// tree returns the rules that isolated pods are led to in a direction, from the root of the dispatch tree: a line for
// each set with its pods, or with their number where the path goes on; at last the rules themselves, if they are asked
// for. It fails if others are led to a chain than on from there.
func (k kernel) tree(t *testing.T, d npc.Direction, withRules bool) string {
	var out strings.Builder
	var visit func(chain, indent string) []string // the pods that are led on
	visit = func(chain, indent string) (pods []string) {
		for _, r := range k.rules[chain] {
			set := setMatch.FindStringSubmatch(r.match)
			if set == nil || !strings.HasPrefix(r.comment, "isolated pods of ") {
				continue
			}
			if set[2] != d.Own() || r.match != set[0] {
				t.Errorf("%s %s: %s asks for another address or more", chain, r.comment, r.match)
			}
			to, members := strings.TrimPrefix(r.target, "-g "), k.members[set[1]]
			pods = append(pods, members...)
			rest := k.rules[to]
			if rest[len(rest)-1].target != "-g "+naming.DropChain(d) {
				fmt.Fprintf(&out, "%s%s: %d pods\n", indent, r.comment, len(members))
				if below := visit(to, indent+"  "); !slices.Equal(sorted(below), sorted(members)) {
					t.Errorf("%s: %q are led there, and %q on", r.comment, members, below)
				}
				continue
			}
			fmt.Fprintf(&out, "%s%s: %s\n", indent, r.comment, strings.Join(members, " "))
			for _, r := range rest {
				if withRules {
					fmt.Fprintf(&out, "%s  %s # %s\n", indent, strings.TrimLeft(k.named(r.match)+" "+r.target, " "), r.comment)
				}
			}
		}
		return pods
	}
	visit(naming.IsolatedChain(d), "")
	return out.String()
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// named replaces the names of sets in a match by what they are about.
func (k kernel) named(match string) string {
	return setMatch.ReplaceAllStringFunc(match, func(text string) string {
		m := setMatch.FindStringSubmatch(text)
		return m[2] + " in [" + k.about[m[1]] + "]"
	})
}

// leads fails if isolated pods are not led to these rules.
func (w *harness) leads(f npc.Family, d npc.Direction, want string) {
	w.Helper()
	got := w.kernel(f).tree(w.T, d, true)
	if diff := cmp.Diff(trimmed(want), trimmed(got)); diff != "" {
		w.Errorf("%s %s (-want +got):\n%s", f, d, diff)
	}
}

// trimmed returns the lines of a text without their indentation.
func trimmed(text string) (out []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// isolated returns a line for each local pod that something isolates: the directions, each with the policies that
// isolate the pod.
func (w *harness) isolated() string {
	var out []string
	for p := range w.index.LocalPods() {
		line := p.String() + ":"
		for _, d := range npc.Directions {
			if w.Of(p)[d] {
				line += " " + d.String() + "(" + strings.Join(w.Isolating(p, d), " ") + ")"
			}
		}
		if !strings.HasSuffix(line, ":") {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
