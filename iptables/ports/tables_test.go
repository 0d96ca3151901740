package ports_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

func nft(t testing.TB, command string) string {
	t.Helper()
	out, err := exec.Command("nft", command).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v: %s", command, err, out)
	}
	return string(out)
}

// symbolic makes what some versions of nft print in words numbers.
var symbolic = strings.NewReplacer("icmpv6 type nd-router-advert ", "icmpv6 type 134 ", "icmpv6 type nd-redirect ", "icmpv6 type 137 ",
	"icmpv6 type >= destination-unreachable", "icmpv6 type >= 0")

func ruleset(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("nft", "--stateless", "--numeric", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v: %s", err, out)
	}
	return symbolic.Replace(string(out))
}

// pods returns a state with n pods, every tenth of them not on a bridge.
func pods(mode ports.Mode, n int) ports.State {
	s := ports.State{Mode: mode, Exempt: []int{1, 2, 70000}, Sources: map[ports.Source]string{}}
	for i := range n {
		port, mac := 70001+i, ports.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}
		if i%10 == 9 {
			s.Routed, mac = append(s.Routed, port), ports.MAC{}
		} else {
			s.Bridged = append(s.Bridged, port)
		}
		s.Bound = append(s.Bound, port)
		for _, a := range []string{fmt.Sprintf("10.32.%d.%d", i>>8, i&255), fmt.Sprintf("fd00::%x", i+1), fmt.Sprintf("fe80::%x", i+1)} {
			s.Sources[ports.Source{Port: port, MAC: mac, Addr: netip.MustParseAddr(a)}] = fmt.Sprintf("shop/web-%d", i)
		}
	}
	return s
}

func write(t testing.TB, want ports.State) {
	t.Helper()
	have, whole, err := ports.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := ports.Write(have, want, whole); err != nil {
		t.Fatal(err)
	}
}

func holds(t testing.TB, when string, want ports.State, wantWhole bool) {
	t.Helper()
	have, whole, err := ports.Read()
	if err != nil {
		t.Fatal(err)
	}
	if whole != wantWhole || wantWhole && !have.Equal(want) {
		t.Errorf("%s: %+v (whole: %t), want %+v (%t)\n%s", when, have, whole, want, wantWhole, ruleset(t))
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	holds(t, "at first", ports.State{}, false)
	for _, n := range []int{0, 3, 12, 1000} {
		for _, mode := range []ports.Mode{ports.Off, ports.Audit, ports.On} {
			for _, vlan := range []bool{false, true} {
				for _, types := range [][]uint16{nil, {}, {0x888e, 0x88cc}} {
					want := pods(mode, n)
					want.AllowVLAN, want.OnlyTypes, want.Types = vlan, types != nil, types
					write(t, want)
					holds(t, fmt.Sprint(mode, n, vlan, types), want, true)
				}
			}
		}
	}
	_ = slices.Equal[[]int]
}

func TestGolden(t *testing.T) {
	s := pods(ports.On, 10)
	s.OnlyTypes = true
	write(t, s)
	t.Log(ruleset(t))
	out, _ := exec.Command("nft", "--debug=netlink", "list", "ruleset").CombinedOutput()
	_ = out
}
