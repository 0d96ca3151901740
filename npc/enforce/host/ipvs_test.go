package host

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// ipvsHead is what /proc/net/ip_vs of Linux 6.12 begins with.
const ipvsHead = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
`

func TestIPVSDestination(t *testing.T) {
	const (
		unused = "TCP  C0A80009:192B rr  persistent 7500 FFFFFFFF\n"
		node   = "TCP  0A000001:192B rr  \n  -> 0A000101:192B      Masq    1      0          0         \n"
		itself = "SCTP  0A000002:0009 rr  \n  -> 7F000001:0009      Masq    1      0          0         \n"
		pod    = "TCP  0A000001:0050 rr  \n  -> 0A200102:1F90      Masq    1      0          0         \n"
		mark   = "FWM  00000005 rr \n  -> 0A200103:0050      Route   1      0          0         \n"
		ipv6   = "UDP  [fd00:0000:0000:0000:0000:0000:0000:0001]:0035 rr \n" +
			"  -> [fd00:0032:0000:0000:0000:0000:0000:0002]:0035      Masq    1      0          0         \n"
	)
	for name, c := range map[string]struct{ services, want string }{
		"no service":                     {"", ""},
		"a service without a backend":    {unused, ""},
		"API servers of nodes":           {unused + node, ""},
		"the node itself":                {itself + node, ""},
		"a pod":                          {itself + node + pod, "10.32.1.2:8080"},
		"a pod by the mark of a packet":  {node + mark, "10.32.1.3:80"},
		"a pod by IPv6":                  {unused + ipv6 + pod, "[fd00:32::2]:53"},
		"a destination without a port":   {"  -> 0A200102 Masq 1 0 0\n", "error"},
		"a destination that is half one": {"  -> 0A2001:0050 Masq 1 0 0\n", "error"},
		"a port that is none":            {"  -> 0A200102:50 Masq 1 0 0\n", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			is := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.1.1") }
			to, err := ipvsDestination(strings.NewReader(ipvsHead+c.services), is)
			got := ""
			switch {
			case err != nil:
				got = "error"
			case to.IsValid():
				got = to.String()
			}
			if got != c.want {
				t.Errorf("IPVS forwards to %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

// TestIPVSOfTheKernel has the kernel list services as TestIPVSDestination expects.
func TestIPVSOfTheKernel(t *testing.T) {
	ipvsadm := func(args string) error {
		said, err := exec.Command("ipvsadm", strings.Fields(args)...).CombinedOutput()
		return errors.Wrapf(err, "ipvsadm %s: %s", args, said)
	}
	if err := ipvsadm("-A -t 10.0.0.1:6443"); err != nil {
		sandbox.Lacks(t, "IPVS", err)
	}
	t.Cleanup(func() {
		if err := ipvsadm("-C"); err != nil {
			t.Error(err)
		}
	})
	is := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.1.1") }
	for _, c := range []struct{ args, want string }{
		{"-a -t 10.0.0.1:6443 -r 10.0.1.1:6443 -m", ""},
		{"-A -u [fd00::1]:53", ""},
		{"-a -u [fd00::1]:53 -r [fd00:32::2]:53 -m", "IPVS forwards to [fd00:32::2]:53"},
	} {
		if err := ipvsadm(c.args); err != nil {
			t.Fatal(err)
		}
		if why := ipvsReason(is); why != c.want && (c.want == "" || !strings.HasPrefix(why, c.want+" (")) {
			t.Errorf("after %s: %q", c.args, why)
		}
	}
}
