// Package flows has the commands that list recorded connections, and how often rules decided about them.
//
//	OfNode       asks the weave-npc of this node
//	OfCluster    asks that of every node through kubectl, and merges what several nodes recorded of one connection
//
//	records or hits ─▶ filter ─▶ merge ─▶ table, or JSON
package flows
