package syncer

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
)

// reportRefused reports the policies of which the kernel refuses something, once, and those of which it does not any more.
func (s *Syncer) reportRefused() {
	refused := map[string]npc.InvalidPolicy{}
	for _, p := range s.model.Rejected() {
		key := p.Namespace + "/" + p.Name
		refused[key] = p
		if s.refused[key].UID != p.UID || s.refused[key].Name == "" {
			s.log.Error("the kernel refuses what a policy needs: it is left out, and tried again later", "policy", key,
				"reason", p.Reason)
			s.report(p)
		}
	}
	for key := range s.refused {
		if _, still := refused[key]; !still {
			s.log.Info("the kernel refuses nothing of a policy any more", "policy", key)
		}
	}
	s.refused = refused
	s.metrics.Refused.Set(float64(len(refused)))
	if !s.noteUnreporting() && len(refused) == 0 {
		for _, k := range s.kernels {
			k.refusals.reset()
		}
	}
}

// noteUnreporting takes note of whether the kernel refuses to report what is blocked.
func (s *Syncer) noteUnreporting() bool {
	why := s.model.LoggingRejected()
	switch {
	case why != "" && s.unreporting == "":
		s.log.Warn("the kernel does not take a rule that reports blocked packets: they are dropped without a report", "reason", why)
	case why == "" && s.unreporting != "":
		s.log.Info("the kernel takes the rules that report blocked packets")
	}
	s.unreporting = why
	return why != ""
}

// setTrouble puts into words what Ready says.
func (s *Syncer) setTrouble() {
	var texts []string
	for _, k := range s.kernels {
		if k.failing != "" {
			texts = append(texts, "the kernel cannot be brought up to date: "+k.family.String()+": "+k.failing)
		}
	}
	for _, k := range s.kernels {
		if why := conntrack.Explain(k.flows.Trouble(time.Now())); why != "" {
			texts = append(texts, k.family.String()+": "+why)
		}
		if why := k.postponedTrouble(); why != "" {
			texts = append(texts, why)
		}
	}
	if len(s.refused) > 0 {
		texts = append(texts, "the kernel refuses what these policies need: "+
			strings.Join(slices.Sorted(maps.Keys(s.refused)), ", "))
	}
	texts = append(texts, s.watcher.troubles()...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = strings.Join(texts, "; ")
}

// takeForgotten takes over what was deleted, and what cannot be.
func (s *Syncer) takeForgotten() {
	for _, k := range s.kernels {
		s.model.Forgotten(k.family, k.flows.Done())
		err, _ := k.flows.Trouble(time.Now())
		switch {
		case err != nil && k.unforgetting == "":
			s.metrics.EnforcementErrors.Inc()
			s.log.Error("cannot delete the connections of addresses that other pods have now: these are not opened; trying again",
				"family", k.family, "err", err)
			k.unforgetting = err.Error()
		case err == nil && k.unforgetting != "":
			s.log.Info("connections of addresses that other pods have now can be deleted again", "family", k.family)
			k.unforgetting = ""
		}
	}
}
