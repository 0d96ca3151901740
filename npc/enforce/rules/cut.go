package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

const endedComment = "its connection was ended: what policies allow changed"

// CutMark is the bit of the mark of connections that were ended; 0 if none are.
type CutMark uint32

// match matches the packets of connections that were ended.
func (m CutMark) match() string {
	return fmt.Sprintf("-m connmark --mark %#x/%#x", uint32(m), uint32(m))
}

// rules returns the rule that leads the packets of connections to their end, if there are such connections.
func (m CutMark) rules() []iptables.Rule {
	if m == 0 {
		return nil
	}
	return []iptables.Rule{{Match: m.match(), Target: "-g " + naming.CutChain, Comment: endedComment}}
}

// ToNode returns the rule for packets of local pods to the node itself, whose connection was ended.
func (m CutMark) ToNode() iptables.Rule {
	return iptables.Rule{Match: m.match(), Target: "-j " + naming.CutChain, Comment: endedComment}
}

// FromNode returns the rules for what the node itself answers to such packets. A reset that tells a pod of the end passes.
func (m CutMark) FromNode() [2]iptables.Rule {
	tcp, rest := m.ToNode(), m.ToNode()
	tcp.Match = "-p tcp -m tcp ! --tcp-flags RST RST " + tcp.Match
	rest.Match = "! -p tcp " + rest.Match
	return [2]iptables.Rule{tcp, rest}
}

// Cut returns the rules for packets of connections that were ended. Both ends of a TCP connection are told, each when it sends something.
func Cut() []iptables.Rule {
	return []iptables.Rule{{Match: "-p tcp", Target: "-j REJECT --reject-with tcp-reset", Comment: "tells who sent it"},
		{Target: "-j DROP", Comment: "ended"}}
}

// CutMarkIn returns the bit of the mark by which rules in the kernel tell connections that were ended; 0 if there are no such rules.
func CutMarkIn(seen iptables.Seen) CutMark {
	for _, chain := range []string{naming.ForwardChain, naming.MainChain} {
		for _, text := range seen.Chains[chain].Text {
			_, mark, found := strings.Cut(text, " -m connmark --mark 0x")
			if !found || !strings.HasSuffix(text, " -g "+naming.CutChain) {
				continue
			}
			digits, _, _ := strings.Cut(mark, "/")
			if bit, err := strconv.ParseUint(digits, 16, 32); err == nil {
				return CutMark(bit)
			}
		}
	}
	return 0
}
