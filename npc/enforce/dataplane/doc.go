// Package dataplane holds what one IP family should have in the kernel and is known to have, and plans the difference.
//
//	desired: Sets.Add, Chains ─┐
//	                           ├▶ Table ──Plan──▶ Transaction ──applied by the syncer──▶ Result ──Commit──▶ Table
//	known: LoadSets, LoadChains┘
//
//	table, set, chain, rule    sets have members with comments, chains have rules with owners
//	plan, changes, order       the steps of a transaction, in an order without wrong verdicts between them
//	commit, rejections         what the kernel took, and what it did not, which is left out until it is tried again
//	hold                       what the kernel held while input is missing, which stays
//	mismatch, observed         sets of our names that cannot be ours; drift
//
// It knows neither pods nor policies, and touches no kernel.
//
//	t := dataplane.NewTables()[npc.IPv4]
//	t.Sets.Add(name, ipset.HashIP, "pods with app=web").Add(ipset.Addr(a), ipset.Attr{Comment: "shop/web"})
//	tx := t.Plan(dataplane.Options{})          // changes nothing
//	t.Commit(tx, tx.Taken())                   // or what the kernel took of it
package dataplane
