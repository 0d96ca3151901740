// Package kernel reads the sets and chains of weave-npc in this node's kernel, for explain --kernel and show.
//
//	Read ─▶ State ─┬─ Check      why they are not weave-npc's, or those of another node
//	               ├─ Sets       with members, and the policies that they are for
//	               ├─ Rules      with the policies that their comments name (policyrule)
//	               └─ Verdict    the path of a packet through them, by package simulate
//
// It must not change the kernel, nor print anything: results are values. Without a Purpose it lists the chains and
// sets, but not what they are for.
//
//	s, err := kernel.Read(ctx, "nft", families)
//	s.Describe(kernel.Purpose{Cluster: c, Sets: uses, Chain: chainUse})
package kernel
