// Package who has the commands that answer who reaches a pod, and what a pod reaches, on all ports.
//
//	root.AddCommand(who.CanReach(), who.WhatReaches())
//
// Package whocan computes the answers; subjects with the same answer are printed together (subject, text).
package who
