package iptables

// HairpinIPv4 and HairpinIPv6 are classic BPF programs for `-m bpf --bytecode "..."` that match a packet whose
// source address is its destination address. Together with `-m conntrack --ctstate DNAT` they match a pod that
// reaches itself through a Service, for every pod in one rule. The match runs them at the network header; they
// compare the addresses word by word (bytes 12 and 16 of the IPv4 header, RFC 791; 8 and 24 of the IPv6 header,
// RFC 8200):
//
//	ld [src]; tax; ld [dst]; jeq x, next, no   (once for IPv4, four times for IPv6)
//	ret 65535
//	no: ret 0
const (
	HairpinIPv4 = "6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 65535,6 0 0 0"
	HairpinIPv6 = "18," +
		"32 0 0 8,7 0 0 0,32 0 0 24,29 0 13 0," +
		"32 0 0 12,7 0 0 0,32 0 0 28,29 0 9 0," +
		"32 0 0 16,7 0 0 0,32 0 0 32,29 0 5 0," +
		"32 0 0 20,7 0 0 0,32 0 0 36,29 0 1 0," +
		"6 0 0 65535,6 0 0 0"
)
