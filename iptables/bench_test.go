package iptables

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

func BenchmarkFingerprint(b *testing.B) {
	for _, backend := range []Backend{NFT, Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			sandbox.Thread(b)
			table, err := New(IPv4, backend)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := table.Fingerprint(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
