package commandline

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"gate", "hook", "log-format", "log-level", "pod-cidr", "pod-interface"}
	for misspelt, want := range map[string]string{"gates": "gate", "GATE": "gate", "loglevel": "log-level", "interface": "pod-interface",
		"pod_interfaces": "pod-interface", "hok": "hook", "x": "", "": "", "zzzzzz": "", "pod-cdir": "pod-cidr"} {
		if got := nearest(misspelt, names); got != want {
			t.Errorf("%q is near %q, not %q", misspelt, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance of %q and %q is %d", c.a, c.b, got)
		}
	}
}
