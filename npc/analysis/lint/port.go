package lint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// checkPorts checks the ports of a rule of a NetworkPolicy.
func (l *linter) checkPorts(s subject, w writtenRule, r policy.Rule, d npc.Direction, targets []*group) {
	receivers := l.receivers(r, d, targets)
	for i, p := range r.Ports {
		field := fmt.Sprintf("%s.ports[%d]", w.field, i)
		switch {
		case len(receivers) == 0: // said elsewhere, or not known
		case p.Name != "":
			l.checkPortName(s, field, p, receivers)
		case d == npc.Ingress && p.First != 0 && p.First == p.Last:
			l.checkOffered(s, field, p, targets)
		}
	}
}

// receivers returns the pods whose ports the names of a rule are: for ingress those that it is for, for egress its
// peers.
func (l *pods) receivers(r policy.Rule, d npc.Direction, targets []*group) (out []*group) {
	if d == npc.Ingress {
		return targets
	}
	everywhere := &policy.Selector{}
	for _, p := range r.Peers {
		if p.Block != nil { // any pod may be in it
			return l.selected("", everywhere, policy.Selector{})
		}
		out = append(out, l.peerGroups(p)...)
	}
	if len(r.Peers) == 0 {
		return l.selected("", everywhere, policy.Selector{})
	}
	return out
}

// checkPortName looks for a pod that has a port of a name.
func (l *linter) checkPortName(s subject, field string, p policy.Port, receivers []*group) {
	names := map[string]bool{} // of the protocol
	other := ""                // the protocol of a port that has the name
	for _, g := range receivers {
		for _, port := range g.Ports {
			switch {
			case !p.HasProtocol(port.Protocol):
				if port.Name == p.Name {
					other = npc.ProtocolName(port.Protocol)
				}
			case port.Name == p.Name:
				return
			default:
				names[port.Name] = true
			}
		}
	}
	hint := didYouMean(nearest(p.Name, maps.Keys(names)))
	if other != "" {
		hint = fmt.Sprintf("; %s/%s is one", other, p.Name)
	}
	l.add(portName, s, field, fmt.Sprintf("no pod that receives has a port %s%s", p, hint), namesText(names))
}

func namesText(names map[string]bool) string {
	if len(names) == 0 {
		return ""
	}
	text := "ports there:"
	for i, n := range slices.Sorted(maps.Keys(names)) {
		if i == 10 {
			return text + " ..."
		}
		text += " " + n
	}
	return text
}

// checkOffered looks for a container that declares a port, if those of all pods declare any.
func (l *linter) checkOffered(s subject, field string, p policy.Port, targets []*group) {
	for _, g := range targets {
		if len(g.offered) == 0 || g.offered[offered{p.Protocol, p.First}] {
			return
		}
	}
	l.add(portNotOffered, s, field, fmt.Sprintf("no container of the selected pods declares %s", p), "")
}
