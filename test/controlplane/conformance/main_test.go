package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/report"
)

// TestSpecs looks at the specs that the suite really has. `make test` leaves it out, for it builds the whole suite; run
// it after a change of Kubernetes' version: go -C test/controlplane test ./conformance
func TestSpecs(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	all, err := load("", "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("selected", func(t *testing.T) {
		for name, c := range map[string]struct {
			focus        string
			sctp         bool
			run, skipped int
		}{
			"all":                        {"", false, 47, 3},
			"all with SCTP":              {"", true, 50, 0},
			"of the API":                 {"Netpol API", false, 2, 0},
			"only SCTP":                  {"using SCTP", false, 0, 3},
			"by the end of the name":     {`default-deny-ingress' policy \[Feature:NetworkPolicy\]$`, false, 2, 1},
			"by the start of the name":   {`^\[sig-network\] Netpol API`, false, 2, 0},
			"about SCTP without sockets": {"SCTP", false, 2, 3},
			"none":                       {"no such spec", false, 0, 0},
		} {
			run, skipped := choose(all, regexp.MustCompile(c.focus), c.sctp)
			if len(run) != c.run || len(skipped) != c.skipped {
				t.Errorf("%s: %d run and %d are skipped, want %d and %d", name, len(run), len(skipped), c.run, c.skipped)
			}
			for _, spec := range skipped {
				if report.Of(spec) != report.Skipped {
					t.Errorf("%s: %s is %s", name, spec.FullText(), report.Of(spec))
				}
			}
		}
	})
	t.Run("named", func(t *testing.T) {
		seen := map[string]bool{}
		for _, spec := range all {
			name := report.Name(spec)
			if seen[spec.FullText()] || !strings.Contains(spec.FullText(), name) {
				t.Errorf("%q and its short form %q do not choose one spec", spec.FullText(), name)
			}
			seen[spec.FullText()] = true
		}
	})
}
