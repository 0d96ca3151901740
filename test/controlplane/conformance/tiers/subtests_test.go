package main

import (
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/network-policy-api/conformance"
	"sigs.k8s.io/network-policy-api/conformance/tests"
)

// TestSubtests looks at the subtests that the suite really has.
func TestSubtests(t *testing.T) {
	all, err := listSubtests(conformance.Manifests, experimentalTests())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("selected", func(t *testing.T) {
		for name, c := range map[string]struct {
			focus              string
			sctp, experimental bool
			run, skipped       int
		}{
			"standard without SCTP":      {"", false, false, 49, 43},
			"standard":                   {"", true, false, 83, 9},
			"experimental without SCTP":  {"", false, true, 56, 36},
			"all":                        {"", true, true, 92, 0},
			"a test":                     {"CNPAdminTierIngressTCP", false, false, 6, 0},
			"a test by one of its parts": {"CNPAdminTierIngressTCP .*pass-ingress.* at the specified port$", false, false, 6, 0},
			"a test that has SCTP too":   {"CNPAdminTierEgressNodePeers", false, true, 2, 1},
			"nothing":                    {"no such test", true, true, 0, 0},
		} {
			run, skipped := selection{regexp.MustCompile(c.focus), c.sctp, c.experimental}.choose(all)
			if len(run) != c.run || len(skipped) != c.skipped {
				t.Errorf("%s: %d run and %d are skipped, want %d and %d", name, len(run), len(skipped), c.run, c.skipped)
			}
		}
	})
	t.Run("named", func(t *testing.T) {
		seen, known := map[string]bool{}, map[string]bool{}
		for _, s := range all {
			if seen[s.path()] {
				t.Errorf("two subtests are named %s", s.path())
			}
			seen[s.path()], known[s.test] = true, true
		}
		for _, test := range tests.ConformanceTests {
			if !known[test.ShortName] {
				t.Errorf("the suite has a test %s, and no subtest of it was found", test.ShortName)
			}
		}
	})
}

func TestListSubtestsRefuses(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"names that are computed": {`package x; var a = T{ShortName: "A", F: func() { t.Run(name, f) }}`, "no fixed name"},
		"what it cannot parse":    {`package`, "parsing"},
		"no subtests":             {`package x`, "no subtests"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := listSubtests(fstest.MapFS{"tests/a.go": {Data: []byte(c.source)}}, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestPattern compares what -test.run gets with the names that Go's tests have.
func TestPattern(t *testing.T) {
	selected := []subtest{{test: "A", name: "allow 'x'; 1|2 (y)"}, {test: "B", name: "z"}}
	want := `^ClusterNetworkPolicy$/^A$/^allow_'x';_1\|2_\(y\)$|^ClusterNetworkPolicy$/^B$/^z$`
	if got := pattern(selected); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
