package iptables

import "fmt"

// Family is an IP version. Each has a filter table of its own.
type Family uint8

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// command returns the beginning of the names of the family's programs.
func (f Family) command() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Backend is the kernel subsystem that holds iptables rules. A packet passes both, but a rule of one cannot refer to a
// chain of the other.
type Backend string

// The two backends.
const (
	Legacy Backend = "legacy"
	NFT    Backend = "nft"
)
