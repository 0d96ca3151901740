package controller

import "github.com/weave-npc/weave-npc/iptables"

// comment returns a text as rules and entries carry it.
func comment(text string) string { return iptables.Comment(text) }
