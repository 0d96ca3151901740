package index

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unsafe"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/labelset"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestSharedLists shows that pods of one node, or of one kind, share the lists of its only address or of their only
// port.
func TestSharedLists(t *testing.T) {
	var i interner
	hosts := func(texts string) []netip.Addr { return i.shareHosts(fixture.Addrs(texts)) }
	a, b, other, two := hosts("172.31.0.1"), hosts("172.31.0.1"), hosts("172.31.0.2"), hosts("172.31.0.1 172.31.0.2")
	if &a[0] != &b[0] || &a[0] == &other[0] || &a[0] == &two[0] || len(two) != 2 || other[0] != fixture.Addrs("172.31.0.2")[0] || hosts("") != nil {
		t.Errorf("lists of addresses: %v, %v, %v, %v", a, b, other, two)
	}
	ports := func(name string, number uint16) []npc.NamedPort {
		return i.sharePorts([]npc.NamedPort{{Name: strings.Clone(name), Protocol: 6, Port: number}})
	}
	p, q, r := ports("http", 80), ports("http", 80), ports("http", 81)
	if &p[0] != &q[0] || &p[0] == &r[0] || r[0].Port != 81 || unsafe.StringData(p[0].Name) != unsafe.StringData(r[0].Name) {
		t.Errorf("lists of ports: %v, %v, %v", p, q, r)
	}
}

// TestSharedWorkloads shows that pods of one workload share it, and that a pod which gets another one is distinguished.
func TestSharedWorkloads(t *testing.T) {
	w := newHarness(t)
	set := func(name string, workload *npc.Workload) *npc.Workload {
		w.SetPod(npc.Pod{Namespace: "shop", Name: name, UID: "1", Workload: workload})
		return w.Pod("shop", name).Facts().Workload
	}
	web := func() *npc.Workload { return &npc.Workload{Kind: "Deployment", Name: strings.Clone("web")} }
	if a, b := set("web-1", web()), set("web-2", web()); a != b || *a != *web() {
		t.Errorf("%v and %v are not shared", a, b)
	}
	for _, want := range []*npc.Workload{{Kind: "ReplicaSet", Name: "web"}, nil, web()} {
		if got := set("web-1", want); (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%v, not %v", got, want)
		}
	}
}

// TestSharingIsBounded shows that what is remembered does not grow without end, and is right all the same.
func TestSharingIsBounded(t *testing.T) {
	var i interner
	for n := range 2*labelset.MaxTexts + 1 {
		text := fmt.Sprint(n)
		host := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		if i.shareHosts([]netip.Addr{host})[0] != host || i.sharePorts([]npc.NamedPort{{Port: uint16(n)}})[0].Port != uint16(n) {
			t.Fatalf("%s is taken for another", text)
		}
		if w := (npc.Workload{Kind: "Pod", Name: text}); *i.shareWorkload(&w) != w || len(i.workloads) > labelset.MaxTexts {
			t.Fatalf("%d workloads are remembered, or one is taken for another", len(i.workloads))
		}
		if len(i.hosts) > labelset.MaxTexts || len(i.ports) > labelset.MaxTexts {
			t.Fatalf("%d hosts, %d ports are remembered", len(i.hosts), len(i.ports))
		}
	}
}
