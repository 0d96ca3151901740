// Package enforce has what all parts of the node daemon share: its configuration, and which policies it cannot enforce.
//
//	npc/source ──▶ controller ──▶ dataplane ──▶ syncer ──▶ ipset, iptables ──▶ kernel
//
//	Config             what an operator decides
//	InvalidPolicy      a policy that is not enforced as specified, with the reason
//	InvalidPolicies    records them, so that each is reported once for a reason (reports)
//
//	controller         follows events, in order, with internal/index, networkpolicy, clusterpolicy and failclosed
//	rules, naming      rules as text; the names of sets and chains
//	dataplane          what the kernel should have and is known to have; the transactions between them
//	syncer             applies transactions, retries, and repairs drift
//	established        terminates open connections that policies no longer allow
//	verdict            evaluates a flow of a local pod
//	host               the node's interfaces, addresses and uplinks
package enforce
