package check

import (
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// maxUnmet is how many pairs are kept at most that were not allowed anything yet.
const maxUnmet = 5_000_000

// somePort checks that each source reaches each destination on some port.
func (c *check) somePort(from, to []candidate) {
	s := reachability.NewSample(c.view, ends(from), ends(to))
	var unmet [][2]int
	isAlone := func(k candidate) bool { return k.class != nil && k.class.alone }
	allowed := func(answers *reachability.Answers, i, j int) bool {
		if isAlone(from[i]) || isAlone(to[j]) {
			f, _ := pair(from[i], to[j])
			f.Service = answers.Service
			return explain.Explain(c.view, f).Allowed
		}
		return answers.Allowed(i, j)
	}
	for n, a := range c.asks {
		answers := s.Ask(a.Service)
		still := unmet[:0]
		if n == 0 {
			for i := range from {
				for j := range to {
					if _, ok := pair(from[i], to[j]); ok && !allowed(answers, i, j) {
						still = append(still, [2]int{i, j})
					}
				}
				if len(still) > maxUnmet {
					c.unproved("too many pairs do not reach each other on " + a.String())
					return
				}
			}
		}
		for _, k := range unmet {
			if !allowed(answers, k[0], k[1]) {
				still = append(still, k)
			}
		}
		if unmet = still; len(unmet) == 0 {
			return
		}
	}
	first := unmet[0]
	f, _ := pair(from[first[0]], to[first[1]])
	f.Service = c.asks[0].Service
	if q := to[first[1]].pod; q != nil && len(q.Ports) > 0 {
		f.Service = flow.Service{Protocol: q.Ports[0].Protocol, Port: q.Ports[0].Port}
	}
	c.broken(f, from[first[0]], to[first[1]])
}
