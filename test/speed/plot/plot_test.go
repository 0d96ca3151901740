package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlot draws medians of what go test -bench prints.
func TestPlot(t *testing.T) {
	dir := t.TempDir()
	in := `goos: linux
BenchmarkStart/pods=1000/namespaces=100/policies=100/local=110-2   1   0 ns/op   100 start-ms   2 x/floor-start   40 resident-MB   1 x/floor-resident
BenchmarkStart/pods=1000/namespaces=100/policies=100/local=110-2   1   0 ns/op   10 start-ms   2 x/floor-start   40 resident-MB   1 x/floor-resident
BenchmarkStart/pods=1000/namespaces=100/policies=100/local=110-2   1   0 ns/op   900 start-ms   2 x/floor-start   40 resident-MB   1 x/floor-resident
BenchmarkStart/pods=10000/namespaces=100/policies=1000/local=110-2   1   0 ns/op   1000 start-ms   2 x/floor-start   60 resident-MB   1 x/floor-resident
BenchmarkEstablishedPacket/nft/kube-proxy/to-pod/pods=0/namespaces=1/policies=1/local=110-2   1   0 ns/op   1.05 x/floor
BenchmarkEstablishedPacket/nft/kube-proxy/to-pod/pods=0/namespaces=50/policies=1000/local=110-2   1   0 ns/op   1.15 x/floor
PASS
`
	if err := run(strings.NewReader(in), []string{dir}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "start.svg"))
	if err != nil {
		t.Fatal(err)
	}
	// 100 to 1000 ms is the upper of the two decades from 10 to 1000; 1,000 to 10,000 pods is the whole width.
	for _, want := range []string{`points="60.0,177.5 450.0,40.0"`, "weave-npc", "informers alone"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	text, err = os.ReadFile(filepath.Join(dir, "established-packet.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`points="60.0,315.0 450.0,40.0"`, ">1.05</text>", ">1.1</text>", ">1.15</text>", "nft, kube-proxy, to"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "events.svg")); err == nil {
		t.Error("a plot of nothing")
	}
	if err := run(strings.NewReader("BenchmarkX-2 1 fast ns/op\n"), []string{dir}); err == nil {
		t.Error("what is no number is taken for one")
	}
}
