// Package relayclient follows one kind of objects through the replicas of a relay, or at the API server if none helps.
//
//	Relay (replicas: their addresses, transport) ─▶ Follower, one for each kind ─▶ a reflector of client-go
//	  Follower.List     at a replica, or at the API server
//	  Follower.Watch    a stream over changing links:
//	                      route       where it goes on when a link is lost
//	                      pulse       whether what was delivered is what the API server has
//	                      failback    from the API server back to the relay
//	  record            how far a kind was delivered; version compares
//
//	r, err := relayclient.New(relayclient.Config{Address: "kube-system/weave-npc-relay", ...})
//	client, config, err := r.Client()
//	follower := r.Follow("pods", relayclient.Calls{...}, relayclient.Calls{...}, reports)
//	go r.Run(ctx, client)                                // follows the addresses of the replicas
//
// A relay has the resource versions of the API server, so that a watch that breaks goes on elsewhere at the same
// version. The reflector sees neither a replica that goes nor one that returns: no error, no event twice, none that is
// older than what it had, and no reason to list again, unless no server has its version any more. The package does not
// know what is in an object.
package relayclient
