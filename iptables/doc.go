// Package iptables renders chains and rules, restores them in one transaction and reads them back.
//
//	Rule, Chain, Jump ─▶ Update (update, edit) ─▶ Table.Apply ─▶ iptables-restore
//	                                              ApplyWithout leaves out rules that the kernel rejects (bisect)
//	iptables-save ─▶ Table.Read (save, parse) ─▶ Seen
//	Table.Fingerprint    whether the table has changed since, without reading it
//	Detect               the backend, legacy or nft, that the node's other rules are in
//	nft                  netlink, where iptables' programs cannot parse the rules of another program
//
// It knows nothing about policies, pods or the names of chains, and imports no other package of this module.
//
//	table, err := iptables.New(iptables.IPv4, iptables.NFT)
//	allow := iptables.Rule{Match: "-p tcp -m tcp --dport 80", Target: "-j ACCEPT", Comment: "web"}
//	chain := iptables.Chain{Name: "WEAVE-NPC", Rules: []iptables.Rule{allow}}
//	err = table.Apply(ctx, iptables.Update{Replace: []iptables.Chain{chain}})
//	state, err := table.Read(ctx, "WEAVE-NPC")
package iptables
