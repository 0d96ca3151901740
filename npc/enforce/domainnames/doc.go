// Package domainnames learns from the answers of DNS servers which addresses the names of lists have, and holds each
// answer until its addresses are in the kernel's sets.
//
//	names := domainnames.NewNames()
//	names.Follow(lists, pods)       // which names, the sets that their addresses go to, and the pods that may reach them
//	l, err := domainnames.Open(domainnames.Config{Names: names, ...})
//	err = l.Run(ctx)
//
//	Queue ──▶ packet ──▶ streams (TCP) ──▶ reply ──▶ index ──▶ ipset ──▶ verdict ──▶ memory ──▶ Learned
//	                                               subjects ┘
//
// One goroutine reads the queue, adds, gives verdicts, deletes what has expired and shows the kernel that it lives. It
// knows nothing about rules, pods and policies: rules that others write send it answers of trusted DNS servers only.
package domainnames
