// Package dataplane holds what one IP family has in the kernel, ipsets and iptables chains, as it is desired and as it is known to be,
// and plans the transaction that leads from one to the other.
//
// It knows neither pods nor policies: sets have members with comments, and chains have rules with owners. It touches no kernel: what was
// read is loaded, and what the kernel took of a transaction is committed.
//
//	t := dataplane.NewTables()[traffic.IPv4]
//	t.AddSet(name, ipset.HashIP, "pods with app=web").Add(ipset.Addr(a), ipset.Attr{Comment: "shop/web"})
//	t.LoadSets(listings)                       // what the kernel has
//	t.LoadChains(seen)
//	tx := t.Plan(dataplane.Options{})          // changes nothing
//	t.Commit(tx, tx.Taken())                   // or what the kernel took of it
package dataplane
