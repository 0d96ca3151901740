package main

import (
	"slices"
	"strings"
	"testing"
)

func TestLoadOrder(t *testing.T) {
	const dependencies = `kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet.ko:
kernel/fs/netfs/netfs.ko:
kernel/net/9p/9pnet_virtio.ko: kernel/drivers/virtio/virtio-ring.ko kernel/net/9p/9pnet.ko
kernel/drivers/virtio/virtio-ring.ko:
`
	got := loadOrder(dependencies, []string{"9p", "built_in", "9pnet_virtio", "virtio_ring"})
	want := []string{"kernel/fs/netfs/netfs.ko", "kernel/net/9p/9pnet.ko", "kernel/fs/9p/9p.ko",
		"kernel/drivers/virtio/virtio-ring.ko", "kernel/net/9p/9pnet_virtio.ko"}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %q", got)
	}
}

func TestImageOf(t *testing.T) {
	const about = `Package: linux-image-amd64
Version: 6.1.172-1
Depends: linux-base (>= 4.3), linux-image-6.1.0-56-amd64 (= 6.1.172-1)
`
	const image = "linux-image-6.1.0-56-amd64"
	for series, want := range map[string]string{"6.1": image, "6.12": "", "6": image} {
		if got := imageOf(about, series); got != want {
			t.Errorf("%s: %q", series, got)
		}
	}
}

// TestArchive: names and contents begin at multiples of four bytes.
func TestArchive(t *testing.T) {
	var a archive
	a.add("init", 0o100755, []byte("program"))
	a.add("d", 0o040755, nil)
	text := string(a.bytes())
	for content, at := range map[string]int{"070701": 0, "init\x00": 110, "program\x00": 116,
		"TRAILER!!!\x00": 124 + 112 + 110} {
		if got := strings.Index(text, content); got != at || len(text)%4 != 0 {
			t.Errorf("%q is at %d of %d, not %d", content, got, len(text), at)
		}
	}
}

func TestCount(t *testing.T) {
	passed, failed, skipped := count(`=== RUN   TestA
--- PASS: TestA (0.00s)
    --- PASS: TestA/nft (0.00s)
        --- PASS: TestA/nft/one (0.00s)
        --- SKIP: TestA/nft/two (0.00s)
--- FAIL: TestB (0.00s)
    --- FAIL: TestB/legacy (0.00s)
--- PASS: TestC (0.00s)
FAIL
`)
	if passed != 2 || failed != 1 || skipped != 1 {
		t.Errorf("%d passed, %d failed, %d were skipped", passed, failed, skipped)
	}
}

func TestBackends(t *testing.T) {
	if got := atAnyDepth("nft"); !strings.HasPrefix(got, "/(^|_)nft$|//(^|_)nft$|") {
		t.Errorf("tests of nft are %s", got)
	}
	both := []string{"nft", "legacy"}
	if got := backendsOf("ipset", both); !slices.Equal(got, []string{"-"}) {
		t.Errorf("ipset runs with %q", got)
	}
	if got := backendsOf("iptables", both); !slices.Equal(got, both) {
		t.Errorf("iptables runs with %q", got)
	}
}
