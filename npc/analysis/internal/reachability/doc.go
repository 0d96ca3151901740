// Package reachability finds out which pods and addresses reach which, for all pairs at once.
//
// Pods that no policy distinguishes are one class, and are evaluated once.
//
//	Partition         pods and addresses by class, in one or more views of a cluster
//	Relation          which classes reach which others, for one service
//	Sample            the same for pods that are not together in one cluster
//	Domains           addresses that stand for domain names
//	Compare, Effects  how two clusters differ
//
// Its verdicts are those of npc/analysis/explain. It does not know why a flow is denied.
package reachability
