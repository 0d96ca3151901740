package failclosed

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestScope(t *testing.T) {
	ranges := []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")}
	in, outside, other := netip.MustParseAddr("10.32.1.7"), netip.MustParseAddr("10.99.1.7"), netip.MustParseAddr("fd00::7")
	for _, c := range []struct {
		about         string
		scope         scope
		prefixes      int
		text          string
		misses        bool // the address outside
		to, from      bool // excepts the address in the range, without an uplink
		toUp, fromUp  bool // and with one
		outsideToUpln bool
	}{
		{"nothing is known", scope{}, 0, "", false, false, false, false, false, false},
		{"the range", scope{Ranges: ranges}, 1, "unknown addresses in 10.32.1.0/24", true, true, true, true, true, false},
		{"the interface", scope{Interface: "cni0", Ranges: ranges}, 2, "unknown addresses behind cni0", false, false, false, true, false, true},
		{"the CNI sends packets of its pods", scope{ByCNI: true}, 2, "unknown addresses behind the CNI's interface", false, true, true, true, true, true},
	} {
		s := c.scope
		if len(s.prefixes()) != c.prefixes || s.String() != c.text || s.misses(outside) != c.misses || s.misses(in) || s.misses(other) {
			t.Errorf("%s: it closes %v, %q, misses %t", c.about, s.prefixes(), s, s.misses(outside))
		}
		if s.excepts(in, true, false) != c.to || s.excepts(in, false, false) != c.from || s.excepts(in, true, true) != c.toUp ||
			s.excepts(in, false, true) != c.fromUp || s.excepts(outside, true, true) != c.outsideToUpln {
			t.Errorf("%s: it does not except what it has to", c.about)
		}
	}
}

func TestReporter(t *testing.T) {
	var log bytes.Buffer
	r := &Reporter{Log: slog.New(slog.NewTextHandler(&log, nil))}
	now := time.Unix(1000, 0)
	logged := func(when, line string) {
		t.Helper()
		text := log.String()
		if line == "" && text != "" || !strings.Contains(text, line) || strings.Count(text, "\n") > 1 {
			t.Errorf("%s the log is %q, not %q", when, text, line)
		}
		log.Reset()
	}
	say := func(why string) { r.Closed("ingress", "unknown addresses behind cni0", why, now) }
	say("")
	logged("open at first,", "")
	say("a/late has no address yet")
	logged("closed,", `msg="fail-closed filter closed" direction=ingress dropped="unknown addresses behind cni0" reason="a/late has no address yet"`)
	now = now.Add(long - 1)
	say("a/later has no address yet")
	logged("for another reason,", "a/later")
	now = now.Add(1)
	say("a/later has no address yet")
	logged("for long,", "fail-closed filter closed for long")
	say("a/later has no address yet")
	logged("said once,", "")
	say("")
	logged("open,", "fail-closed filter open")
	say("a/late has no address yet")
	logged("closed again,", `msg="fail-closed filter closed"`)

	r.Unlisted([]string{"fd32:1::2 of a/web"})
	logged("with an address that no object lists,", `count=1 addresses="fd32:1::2 of a/web"`)
	r.Unlisted([]string{"fd32:1::2 of a/web"})
	logged("said once,", "")
	r.Unlisted(nil)
	logged("listed,", "no address of an isolated pod is closed any more")
	r.Unlisted(nil)
	logged("said once,", "")

	r.Open([]string{"a/stray"}, true, now)
	logged("with a stray,", "outside its range")
	r.Open([]string{"a/stray"}, true, now)
	logged("said once,", "")
	now = now.Add(long)
	r.Open(nil, true, now)
	logged("for long,", "no range of this node's pods is known")
	r.Open(nil, true, now)
	logged("said once,", "")
	r.Open(nil, false, now)
	logged("known,", "")
}
