package daemon

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/staging"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestS102_WhoFlapsDoesNotFillTheLog, nor do Events follow: the annotation comes and goes many times.
func TestS102_WhoFlapsDoesNotFillTheLog(t *testing.T) {
	var log strings.Builder
	reported := 0
	c := controller.New(enforce.Config{NodeName: "node1"})
	s, err := newStage(stageConfig{Mode: staged.All, Enforced: c, Controller: c, Report: func(staging.Notice) { reported++ }, Registry: prometheus.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.SetSynced()
	policy := func(name string, stage bool) *networkingv1.NetworkPolicy {
		p := fixture.Policy(t, name, `{podSelector: {}}`)
		if stage {
			p.Annotations = map[string]string{staged.Annotation: "true"}
		}
		return p
	}
	for i := range 1000 {
		s.SetPolicy(policy("shop/one", i%2 == 1))
		name := fmt.Sprint("shop/p", i)
		s.SetPolicy(policy(name, false))
		s.SetPolicy(policy(name, true))
	}
	s.SetPolicy(policy("other/p", false))
	s.SetPolicy(policy("other/p", true))
	if lines := strings.Count(log.String(), "\n"); lines != 31 || reported != 31 || !strings.Contains(log.String(), "policy=other/p") {
		t.Errorf("%d lines and %d reports", lines, reported)
	}
}
