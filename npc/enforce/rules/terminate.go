package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

const (
	endedComment = "its connection was ended: what policies allow changed"
	// lateComment distinguishes an end by LateMark from others after a restart.
	lateComment = "its connection was ended: it began before its pod was known"
)

// TerminateMark is the bit of the mark of connections that were ended; 0 if none are.
type TerminateMark uint32

// match matches the packets of connections that were ended.
func (m TerminateMark) match() string {
	return fmt.Sprintf("-m connmark --mark %#x/%#x", uint32(m), uint32(m))
}

// terminated returns the rule that leads the packets of connections to their end, if there are such connections.
func (b *Base) terminated() []iptables.Rule {
	if b.TerminateMark == 0 {
		return nil
	}
	r := iptables.Rule{Match: b.TerminateMark.match(), Target: "-g " + naming.TerminateChain, Comment: endedComment}
	if b.LateMark != 0 {
		r.Comment = lateComment
	}
	return []iptables.Rule{r}
}

// ToNode returns the rule for packets of local pods to the node itself, whose connection was ended.
func (m TerminateMark) ToNode() iptables.Rule {
	return iptables.Rule{Match: m.match(), Target: "-j " + naming.TerminateChain, Comment: endedComment}
}

// FromNode returns the rules for the node's own answers to such packets. They accept the reset that notifies a pod of
// the end.
func (m TerminateMark) FromNode() [2]iptables.Rule {
	tcp, rest := m.ToNode(), m.ToNode()
	tcp.Match = "-p tcp -m tcp ! --tcp-flags RST RST " + tcp.Match
	rest.Match = "! -p tcp " + rest.Match
	return [2]iptables.Rule{tcp, rest}
}

// Terminate returns the rules for packets of terminated connections. Both ends of a TCP connection get a reset when
// they send something.
func Terminate() []iptables.Rule {
	return []iptables.Rule{{Match: "-p tcp", Target: "-j REJECT --reject-with tcp-reset",
		Comment: "notifies the sender"},
		{Target: "-j DROP", Comment: "ended"}}
}

// TerminateMarkIn returns the bit of the mark by which rules in the kernel identify terminated connections; 0 if there
// are no such rules. With late, only connections were terminated that began before their pod was known.
func TerminateMarkIn(seen iptables.Seen) (mark TerminateMark, late bool) {
	for _, chain := range []string{naming.ForwardChain, naming.MainChain} {
		for _, text := range seen.Chains[chain].Text {
			_, mark, found := strings.Cut(text, " -m connmark --mark 0x")
			if !found || !strings.HasSuffix(text, " -g "+naming.TerminateChain) {
				continue
			}
			digits, _, _ := strings.Cut(mark, "/")
			if bit, err := strconv.ParseUint(digits, 16, 32); err == nil {
				return TerminateMark(bit), strings.Contains(text, lateComment)
			}
		}
	}
	return 0, false
}
