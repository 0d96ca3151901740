package iptables

import "testing"

func BenchmarkFingerprint(b *testing.B) {
	for _, backend := range []Backend{NFT, Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			newNetwork(b)
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
