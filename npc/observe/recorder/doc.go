// Package recorder records which connections are opened from and to the pods of this node.
//
//	events of the kernel: allowed ─┐
//	                               ├▶ evaluate: ends, rules ─▶ flowlog.Store ─▶ file, socket, metrics
//	blocked packets: Denied ───────┘                              │
//	                              replies: which were answered ───┤
//	                              staged: which staged policies would decide otherwise ─▶ log, metrics
//
//	r := recorder.New(recorder.Config{...})
//	err := r.Open()          // the file and the socket
//	go r.Run(ctx)
//	r.Denied(packet)
//
// Enforcement does not depend on it, and does not know of it.
package recorder
