// Package ipset lists, creates, fills, empties and destroys kernel sets over netlink, in batches.
//
//	Set, Entry, Element, Op    sets and operations on them, as values (set, validation)
//	Conn.Apply                 encodes operations, sends them in windows, and reports failures as a BatchError (apply)
//	Conn.List, Headers         read sets (dump, decode, listing); slots finds those that a dump leaves out
//
// It knows nothing about policies, pods or iptables, and imports no other package of this module. Every set is created
// with the comment extension. The names, options and texts are those of ipset(8), and an [Op] prints as the lines that
// `ipset restore -exist` reads.
//
//	c, err := ipset.Open()
//	pods := ipset.Set{Name: "weave-pods", Type: ipset.HashIP, Family: ipset.IPv4}
//	web := ipset.Element{Entry: ipset.Addr(addr), Attr: ipset.Attr{Comment: "default/web"}}
//	err = c.Apply([]ipset.Op{{Kind: ipset.Create, Set: pods, Elements: []ipset.Element{web}}})
//	sets, err := c.List("weave-")
package ipset
