package wire

import (
	"net"
	"testing"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS104_AChangedMACAddressLosesNothing has a pod set other hardware addresses. The connections that it opens and gets
// right after each are opened, and nothing is reported.
func TestS104_AChangedMACAddressLosesNothing(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			t.Run(attach.String(), func(t *testing.T) {
				w := e2e.New(t, backend, lab.Config{Attach: attach})
				w.Begin(t, e2e.Do(e2e.Base(), e2e.Policy("shop/p", e2e.DBToWeb)))
				w.Daemons[0].AwaitOpen(t)
				for i, down := range []bool{true, false, true} {
					if err := setMAC(w.Hosts["db"], net.HardwareAddr{2, 0, 0, 0, 77, byte(i)}, down); err != nil {
						t.Fatal(err)
					}
					for _, h := range []string{"mon", "web", "out", "n1"} { // hosts do not announce the change
						e2e.Run(t, w.Hosts[h], "ip", "neigh", "flush", "all")
					}
					e2e.EachFamily(func(family int) {
						for _, ends := range [][2]string{{"db", "web"}, {"db", "api"}, {"db", "out"}, {"mon", "db"}, {"out", "db"}} {
							to := w.Hosts[ends[1]].Addr(family)
							w.Probe(t, ends[0], lab.Packet{Proto: "tcp", To: to, Port: 80}, lab.Allowed)
							w.Probe(t, ends[0], lab.Packet{Proto: "udp", To: to, Port: 53}, lab.Allowed)
							w.Probe(t, ends[0], lab.Packet{Proto: "icmp", To: to}, lab.Allowed)
						}
					})
					time.Sleep(2 * time.Second) // forged sources are read once a second
				}
			})
		}
	})
}

// setMAC gives a pod's interface another hardware address. If the interface is down meanwhile, it gets back what the kernel
// removes then.
func setMAC(h *lab.Host, mac net.HardwareAddr, down bool) error {
	return h.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if !down {
			return netlink.LinkSetHardwareAddr(link, mac)
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		for _, a := range addrs {
			if a.IP.IsGlobalUnicast() {
				a.Flags |= unix.IFA_F_NODAD
				if err := netlink.AddrReplace(link, &a); err != nil {
					return errors.Wrapf(err, "adding %s", a)
				}
			}
		}
		for _, r := range routes {
			if err := netlink.RouteReplace(&r); err != nil {
				return errors.Wrapf(err, "adding route %s", r)
			}
		}
		return nil
	})
}
