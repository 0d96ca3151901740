// Package conntrack lists, deletes and marks connections of the kernel's connection tracking, and reads its events.
//
// The connections of an address are deleted so that packets of its former pod do not pass as packets of its next one; a
// single connection is terminated by a bit of its mark.
//
//	Pending.Enter ──▶ Pending ──▶ Worker.Ask ──▶ Table.Delete   (in the background, batched)
//	Pending.Remove ◀───────────── Worker.Done
//
//	Table.Entries ──▶ Table.Terminate ──▶ Table.Marked ──▶ Table.Restore
//
//	subscribe ──▶ subscription ──▶ EventReader.Run      (new connections whose first packet was accepted)
//
// It knows nothing about pods or policies, and imports no other package of this module.
package conntrack
