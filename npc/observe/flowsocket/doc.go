// Package flowsocket passes recorded connections and hits of rules on through a Unix socket that only root can open.
//
//	server, err := flowsocket.Listen("/run/weave-npc/flows.sock", store)
//	go server.Run(ctx, log)
//	client := flowsocket.Client{Path: "/run/weave-npc/flows.sock"}
//	skipped, err := client.Read(ctx, false, func(r flowlog.Record) error { ... })
//	hits, err := client.ReadHits(ctx)
//
// They are lines of JSON. A client says with one byte what it wants: all records, these and then those that are added
// to, or the hits. It cannot change anything.
package flowsocket
