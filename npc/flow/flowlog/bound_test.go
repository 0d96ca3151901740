package flowlog_test

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// TestTenMillionConnections of the same pairs need no more memory than the first of them.
func TestTenMillionConnections(t *testing.T) {
	const total, batch = 10_000_000, 20_000
	j, s := newEvaluator(), flowlog.NewStore("node1", 1000)
	opened := make([]flowlog.Connection, batch)
	for i := range opened {
		opened[i] = flowlog.Connection{Src: []netip.Addr{web1, web2, outside}[i%3], Dst: db, Service: flow.Service{Protocol: 6, Port: uint16(80 + i%7)}}
	}
	add := func() { s.Add(noon.Add(time.Since(noon)), j, flowlog.Allowed, opened) }
	add()
	before := heap()
	for range total/batch - 1 {
		add()
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes more", grown)
	}
	var count uint64
	records, _ := s.Since(0)
	for _, r := range records {
		count += r.Count
	}
	if len(records) != 14 || count != total {
		t.Errorf("%d records of %d connections", len(records), count)
	}
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
