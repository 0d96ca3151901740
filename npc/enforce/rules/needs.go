package rules

import (
	"fmt"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Need is a rule that the kernel takes only if it has a module.
type Need struct {
	Module string
	Rule   iptables.Rule
}

// Needs returns a rule for each module that rules of a family need, with a set that there is. The first essential ones
// are those without which no policy can be enforced.
func Needs(f npc.Family, set string) (needs []Need, essential int) {
	match := func(module, match string) {
		needs = append(needs, Need{module, iptables.Rule{Match: match, Target: "-j RETURN"}})
	}
	match("xt_conntrack", established)
	match("xt_set", naming.Match(set, "src"))
	essential = len(needs)
	match("xt_addrtype", toNode)
	match("xt_physdev", onBridge[1:])
	match("xt_pkttype", frameToAll)
	match("xt_hashlimit", fmt.Sprintf(reportLimit, "try"))
	match("xt_bpf", hairpin(naming.IPTables(f), "-j RETURN").Match)
	match("xt_connmark", TerminateMark(1).match())
	target := func(module, match, target string) {
		needs = append(needs, Need{module, iptables.Rule{Match: match, Target: target}})
	}
	target("xt_mark", "", fmt.Sprintf("-j MARK --set-xmark %#x/0xffffffff", BlockedMark))
	target("xt_NFLOG", "", "-j NFLOG --nflog-group 1")
	reject, ended := "ipt_REJECT", Terminate()[0]
	if f == npc.IPv6 {
		reject = "ip6t_REJECT"
		match("xt_hl", discovery(redirect))
	}
	target(reject, ended.Match, ended.Target)
	return needs, essential
}
