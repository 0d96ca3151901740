package cli

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"gate", "hook", "log-format", "log-level", "pod-cidr", "pod-interface"}
	for misspelt, want := range map[string]string{"gates": "gate", "GATE": "gate", "loglevel": "log-level", "interface": "pod-interface",
		"pod_interfaces": "pod-interface", "hok": "hook", "x": "", "": "", "zzzzzz": "", "pod-cdir": "pod-cidr", "cidr": "pod-cidr", "log-leve": "log-level"} {
		if got := nearest(misspelt, names); got != want {
			t.Errorf("%q is near %q, not %q", misspelt, got, want)
		}
	}
}
