package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// services writes down the services that policies treat differently: ranges of ports of one protocol that the same
// items of rules match are one.
func (w *pods) services() {
	groups := map[string]int{} // protocol and items that match -> the service
	for _, ports := range flow.PortsFrom(w.partition.Services()) {
		s := ports.Service()
		key := w.matching(s)
		n, ok := groups[key]
		if !ok {
			n = len(w.Services)
			groups[key] = n
			w.Services = append(w.Services, service{Protocol: s.Protocol, Asked: s.String(), Text: s.String()})
		}
		if slices.Contains(npc.PortProtocols[:], s.Protocol) {
			w.Services[n].Ranges = append(w.Services[n].Ranges, [2]uint16{ports.First, ports.Last})
		}
	}
	for i := range w.Services {
		if s := &w.Services[i]; len(s.Ranges) > 0 {
			s.Text = rangesText(s.Protocol, s.Ranges)
		}
	}
}

// maxRanges is how many ranges of ports a text names.
const maxRanges = 3

func rangesText(protocol uint8, ranges [][2]uint16) string {
	name := npc.ProtocolName(protocol)
	ports := 0
	var texts []string
	for _, r := range ranges {
		ports += int(r[1]) - int(r[0]) + 1
		text := fmt.Sprint(r[0])
		if r[1] > r[0] {
			text = fmt.Sprintf("%d-%d", r[0], r[1])
		}
		texts = append(texts, text)
	}
	switch {
	case ports == flow.LastPort:
		return name + ", every port"
	case len(ranges) > 1 && ports > 32768:
		return name + ", every other port"
	case len(texts) > maxRanges:
		return fmt.Sprintf("%s/%s and %d more ranges", name, strings.Join(texts[:maxRanges], ","), len(texts)-maxRanges)
	}
	return name + "/" + strings.Join(texts, ",")
}

// matching returns a text that is the same for services that the same items of rules match.
func (w *pods) matching(s flow.Service) string {
	var b strings.Builder
	fmt.Fprint(&b, s.Protocol)
	for i, p := range w.Ports {
		if p.Name == "" && p.Protocol == s.Protocol && (p.First == 0 || p.First <= s.Port && s.Port <= p.Last) {
			fmt.Fprintf(&b, " %d", i)
		}
	}
	if w.named[flow.Service{Protocol: s.Protocol, Port: s.Port}] {
		fmt.Fprintf(&b, " port %d", s.Port)
	}
	return b.String()
}

// findNamed finds the services to which pods give names that rules name.
func (w *pods) findNamed() {
	wanted := map[string]bool{}
	for _, p := range w.Ports {
		wanted[p.Name] = p.Name != ""
	}
	for _, pod := range w.view.Pods {
		for _, p := range pod.Ports {
			if wanted[p.Name] {
				w.named[flow.Service{Protocol: p.Protocol, Port: p.Port}] = true
			}
		}
	}
}
