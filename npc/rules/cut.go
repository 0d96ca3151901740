package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
)

const endedComment = "its connection was ended: what policies allow changed"

// cut matches the packets of connections that were ended.
func (b *Base) cut() string { return fmt.Sprintf("-m connmark --mark %#x/%#x", b.CutMark, b.CutMark) }

// toCut returns the rule that leads the packets of connections to their end, if there are such connections.
func (b *Base) toCut() []iptables.Rule {
	if b.CutMark == 0 {
		return nil
	}
	return []iptables.Rule{{Match: b.cut(), Target: "-g " + naming.CutChain, Comment: endedComment}}
}

// Cut returns the rules for packets of connections that were ended. Both ends of a TCP connection are told, each when it sends something.
func (b *Base) Cut() []iptables.Rule {
	return []iptables.Rule{{Match: "-p tcp", Target: "-j REJECT --reject-with tcp-reset", Comment: "tells who sent it"},
		{Target: "-j DROP", Comment: "ended"}}
}

// CutToNode returns the rule for packets of local pods to the node itself, whose connection was ended.
func (b *Base) CutToNode() iptables.Rule {
	return iptables.Rule{Match: b.cut(), Target: "-j " + naming.CutChain, Comment: endedComment}
}

// CutFromNode returns the rules for what the node itself answers to such packets. A reset that tells a pod of the end passes.
func (b *Base) CutFromNode() [2]iptables.Rule {
	tcp, rest := b.CutToNode(), b.CutToNode()
	tcp.Match = "-p tcp -m tcp ! --tcp-flags RST RST " + tcp.Match
	rest.Match = "! -p tcp " + rest.Match
	return [2]iptables.Rule{tcp, rest}
}

// CutMarkIn returns the bit of the mark by which rules in the kernel tell connections that were ended; 0 if there are no such rules.
func CutMarkIn(seen iptables.Seen) uint32 {
	for _, chain := range []string{naming.ForwardChain, naming.MainChain} {
		for _, text := range seen.Chains[chain].Text {
			_, mark, found := strings.Cut(text, " -m connmark --mark 0x")
			if !found || !strings.HasSuffix(text, " -g "+naming.CutChain) {
				continue
			}
			digits, _, _ := strings.Cut(mark, "/")
			if bit, err := strconv.ParseUint(digits, 16, 32); err == nil {
				return uint32(bit)
			}
		}
	}
	return 0
}
