package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// TestRulesOfOneKeyMatchTheSame makes rules of few parts, so that many have one key. Names are drawn that are like the
// words in a key.
func TestRulesOfOneKeyMatchTheSame(t *testing.T) {
	d := drawer{rand.New(rand.NewPCG(1, 2))}
	known, met := map[string]string{}, 0
	for range 20_000 {
		r := d.rule()
		key, content := fmt.Sprintf("%q", r.Key()), content(r)
		other, is := known[key]
		if is && other != content {
			t.Fatalf("the key %s is that of\n%s\nand of\n%s", key, other, content)
		}
		if is {
			met++
		}
		known[key] = content
	}
	if met < 1000 || len(known) < 1000 {
		t.Errorf("of %d rules with keys of their own, %d were drawn again", len(known), met)
	}
}

// content returns what a rule matches: its parts, each in quotes or of a fixed form.
func content(r MergedRule) string {
	text := fmt.Sprintf("peers(any %t)", r.AnyPeer)
	for _, p := range r.Peers {
		if p.Block != nil {
			text += fmt.Sprintf(" block(%v)", p.Block.Entries)
			continue
		}
		text += fmt.Sprintf(" pods(%q %q)", p.Namespace, p.Pods.String())
		if p.Namespaces != nil {
			text += fmt.Sprintf(" of namespaces(%q)", p.Namespaces.String())
		}
	}
	text += fmt.Sprintf(" ports(any %t)", r.AnyPort)
	for _, p := range r.Ports {
		text += fmt.Sprintf(" port(%d %v %q)", p.Protocol, p.ranges, p.Name)
	}
	return text
}

// drawer draws rules of few parts.
type drawer struct{ *rand.Rand }

func (d drawer) word() string {
	return [...]string{"", "a", "b", "pods", "namespaces", "block", "blocks", "true", "-p tcp", " -m tcp --dport 1"}[d.IntN(10)]
}

func (d drawer) rule() (r MergedRule) {
	r.AnyPeer, r.AnyPort = d.IntN(4) == 0, d.IntN(4) == 0
	for range d.IntN(3) {
		r.Peers = append(r.Peers, d.peer())
	}
	for range d.IntN(3) {
		p := MergedPorts{Protocol: npc.PortProtocols[d.IntN(2)]}
		if d.IntN(2) == 0 {
			p.Name = d.word()
		} else {
			for range d.IntN(3) {
				p.ranges = append(p.ranges, portRange{1, uint16(1 + d.IntN(2))})
			}
		}
		r.Ports = append(r.Ports, p)
	}
	return r
}

func (d drawer) peer() MergedPeer {
	switch d.IntN(4) {
	case 0:
		return MergedPeer{Namespace: d.word(), Pods: d.selector()}
	case 1:
		namespaces := d.selector()
		return MergedPeer{Namespaces: &namespaces, Pods: d.selector()}
	}
	var blocks []ipblock.Block
	for range 1 + d.IntN(2) {
		b := networkingv1.IPBlock{CIDR: [...]string{"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16"}[d.IntN(3)]}
		if d.IntN(2) == 0 {
			b.Except = append(b.Except, [...]string{"10.1.1.0/24", "10.1.2.0/24"}[d.IntN(2)])
		}
		block, err := ipblock.Compile(&b)
		if err != nil {
			panic(err)
		}
		blocks = append(blocks, block)
	}
	return MergedPeer{Block: ipblock.Of(blocks)}
}

func (d drawer) selector() Selector {
	s := &metav1.LabelSelector{}
	for range d.IntN(3) {
		key := [...]string{"a", "b"}[d.IntN(2)]
		op := [...]metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists}[d.IntN(3)]
		e := metav1.LabelSelectorRequirement{Key: key, Operator: op}
		if op != metav1.LabelSelectorOpExists {
			e.Values = [][]string{{"a"}, {"b"}, {"a", "b"}, {"a b"}}[d.IntN(4)]
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	compiled, err := compileSelector(s)
	if err != nil {
		panic(err)
	}
	return compiled
}
