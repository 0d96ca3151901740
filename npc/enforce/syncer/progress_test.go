package syncer

import "testing"

func TestWhatIsBeingDone(t *testing.T) {
	var p progressTracker
	if got := p.String(); got != "" {
		t.Errorf("nothing is done: %q", got)
	}
	endB := p.Begin("IPv6", "writing")
	endA := p.Begin("IPv4", "reading")
	if got, want := p.String(), "IPv4: reading for 0s, IPv6: writing for 0s"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	endB()
	p.Begin("IPv4", "waiting")
	if got, want := p.String(), "IPv4: waiting for 0s"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	endA()
	if got := listOf([]string{"a", "b", "c"}, 2); got != "a, b and more" {
		t.Errorf("listed %q", got)
	}
	if got := listOf([]string{"a", "b"}, 2); got != "a, b" {
		t.Errorf("listed %q", got)
	}
}
