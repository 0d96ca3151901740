package propose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
)

// text returns a policy as YAML, with comments.
func (d draft) text(o *networkingv1.NetworkPolicy) (string, error) {
	head := *o
	head.Spec = networkingv1.NetworkPolicySpec{PodSelector: o.Spec.PodSelector, PolicyTypes: o.Spec.PolicyTypes}
	text, err := yaml.Marshal(head)
	if err != nil {
		return "", err
	}
	b := &strings.Builder{}
	comment(b, "", d.summary()...)
	b.Write(text)
	var ingress, egress []any
	for _, r := range o.Spec.Ingress {
		ingress = append(ingress, []any{r})
	}
	for _, r := range o.Spec.Egress {
		egress = append(egress, []any{r})
	}
	if err := section(b, "ingress", d.rules[npc.Ingress], ingress); err != nil {
		return "", err
	}
	err = section(b, "egress", d.rules[npc.Egress], egress)
	return b.String(), err
}

// section writes the rules of a direction, each as a list of one.
func section(b *strings.Builder, name string, rules []draftRule, lists []any) error {
	if len(rules) == 0 {
		fmt.Fprintf(b, "  %s: []\n", name)
		return nil
	}
	fmt.Fprintf(b, "  %s:\n", name)
	for i, r := range rules {
		text, err := yaml.Marshal(lists[i])
		if err != nil {
			return err
		}
		comment(b, "  ", r.comments()...)
		for line := range strings.Lines(string(text)) {
			b.WriteString("  " + line)
		}
	}
	return nil
}

func comment(b *strings.Builder, indent string, lines ...string) {
	for _, line := range lines {
		fmt.Fprintf(b, "%s# %s\n", indent, line)
	}
}

// summary returns what is said of the whole policy.
func (d draft) summary() []string {
	if len(d.seen) == 0 {
		return append([]string{d.String() + ": no connection was allowed and got a reply"}, d.unlabelled()...)
	}
	first := slices.MinFunc(d.seen, func(a, b *seen) int { return a.first.Compare(b.first) }).first
	last := slices.MaxFunc(d.seen, func(a, b *seen) int { return a.last.Compare(b.last) }).last
	return append([]string{fmt.Sprintf("%s: seen from %s to %s", d.workload, day(first), day(last))}, d.unlabelled()...)
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// unlabelled returns a warning if the workload has no labels that could distinguish it from unknown pods.
func (w *workload) unlabelled() []string {
	if len(w.labels) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s has no lasting label: the selector matches every pod of namespace %s "+
		"without distinguishing labels", w, w.namespace)}
}

// mostLines is how many connections the comments of a rule name.
const mostLines = 20

// comments returns why a rule is there, and what it allows besides.
func (r draftRule) comments() (lines []string) {
	var all []*seen
	for _, e := range r.entries {
		all = append(all, e.seen...)
		if e.workload != nil {
			lines = append(lines, e.workload.unlabelled()...)
		}
	}
	slices.SortFunc(all, (*seen).compare)
	for i, s := range all {
		if i == mostLines {
			lines = append(lines, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		lines = append(lines, s.String())
	}
	switch {
	case r.entries[0].dns:
		lines = append(lines, "DNS, whose long answers come over TCP")
	case r.items[0].isEverything():
		lines = append(lines, "policies name tcp, udp and sctp alone: without ports, this is every protocol and port")
	}
	for _, e := range r.entries {
		if e.kind() == blockKind && !e.block.IsSingleIP() {
			lines = append(lines, fmt.Sprintf("%s is for %d addresses", e.block.Prefix, e.addresses()))
		}
	}
	return lines
}

// addresses returns how many addresses of the entry were seen.
func (e *entry) addresses() int {
	all := map[netip.Addr]bool{}
	for _, s := range e.seen {
		all[s.addr] = true
	}
	return len(all)
}

// String returns the connections in a line.
func (s *seen) String() string {
	port := s.service.String()
	if s.item.name != "" {
		port += " (" + s.item.name + ")"
	}
	return fmt.Sprintf("%s, %s: %s, last %s", s.name, port, spelling.Count(s.count, "connection"), day(s.last))
}
