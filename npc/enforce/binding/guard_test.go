package binding

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/ifaces"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

// brittle are the tables of a guard, which fail on demand.
type brittle struct {
	ports.Tables
	broken atomic.Bool
}

func (b *brittle) Read() (ports.State, bool, error) {
	if b.broken.Load() {
		return ports.State{}, false, errors.New("no nftables")
	}
	return b.Tables.Read()
}

// guarded waits until the kernel guards these ports of a bridge, with tags or without; nil means that it has no table.
func guarded(b *ifaces.Node, when string, tags bool, want []int) {
	b.Helper()
	slices.Sort(want)
	var s ports.State
	var whole bool
	var err error
	await.That(b, when, func() bool {
		s, whole, err = ports.Tables{}.Read()
		return err == nil && whole == (want != nil) && slices.Equal(s.Bridged, want) && s.AllowVLAN == tags
	})
}

// start runs a guard until stop is called.
func start(t *testing.T, o Options, log io.Writer) (stop func()) {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	o.Generation = iptables.Generation
	o.Synced = func() bool { return true }
	o.Isolating, o.Unlisted = func() bool { return false }, func(map[netip.Addr]types.UID) {}
	o.Reporter = NewReporter(prometheus.NewRegistry(), o.Log, func(Owner, string) {})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- NewGuard(o).Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestGuardFollowsThePortsOfPods(t *testing.T) {
	b := ifaces.NewNode(t)
	said := &await.Journal{}
	nobody := API{Owner: func(netip.Addr) (Owner, bool) { return Owner{}, false }, InRange: func(netip.Addr) bool { return false }}
	attachment := host.Attachment{Interface: "cni0", BridgePort: "vethwe-bridge", InRange: nobody.InRange}
	table := &brittle{}
	stop := start(t, Options{Attachment: attachment, API: nobody, Kernel: table}, said)
	guarded(b, "no bridge", false, nil)
	pods, others := b.Bridge("cni0"), b.Bridge("other0")
	guarded(b, "no port", false, []int{})
	first := b.Port(pods, "first")
	b.Port(others, "foreign")
	b.Join(pods, others)
	b.Port(pods, "vethwe-bridge")
	b.Add(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "uplink0", MasterIndex: pods.Attrs().Index}, VxlanId: 5, Port: 4789})
	guarded(b, "a pod's port", false, []int{first})
	second := b.Port(pods, "second")
	guarded(b, "another one", false, []int{first, second})
	tap := b.Add(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, Mode: netlink.TUNTAP_MODE_TAP})
	if err := netlink.LinkSetMaster(tap, pods); err != nil {
		t.Fatal(err)
	}
	guarded(b, "a virtual machine", false, []int{first, second, tap.Attrs().Index})
	if err := netlink.LinkDel(tap); err != nil {
		t.Fatal(err)
	}
	guarded(b, "it has ended", false, []int{first, second})

	table.broken.Store(true)
	await.That(t, "reporting it", func() bool { return said.Count("cannot be guarded") == 1 })
	if out, err := exec.Command("nft", "delete", "table", "bridge", "weave-npc").CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	table.broken.Store(false)
	guarded(b, "repaired", false, []int{first, second})
	await.That(t, "reporting that", func() bool {
		return said.Count("guarded again") == 1 && said.Count("drift found") == 1
	})
	link, err := netlink.LinkByIndex(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	guarded(b, "the first is gone", false, []int{second})
	stop()
	guarded(b, "the guard has ended", false, []int{second})
	stop = start(t, Options{Attachment: attachment, API: nobody, Kernel: table, Config: Config{AllowVLAN: true}}, said)
	guarded(b, "tags are allowed", true, []int{second})
	stop()
}

// TestS110_ReservedAddressesStay has those that the tables have stay until all objects are known.
func TestS110_ReservedAddressesStay(t *testing.T) {
	synced := false
	api := API{Reserved: func() []netip.Addr { return addrs("192.0.2.2") },
		Owner: func(netip.Addr) (Owner, bool) { return Owner{}, false }}
	g := NewGuard(Options{API: api, Synced: func() bool { return synced }, Isolating: func() bool { return false },
		Reporter: NewReporter(prometheus.NewRegistry(), slog.Default(), func(Owner, string) {})})
	g.bindings, g.have.Reserved = newBindings(api, Config{}, nil), addrs("192.0.2.1")
	for _, want := range []string{"192.0.2.2 192.0.2.1", "192.0.2.2"} {
		if got := g.want(result{}, time.Now()).Reserved; !slices.Equal(got, addrs(want)) {
			t.Errorf("synced: %t: reserved are %s, not %s", synced, got, want)
		}
		synced = true
	}
}
