package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// MergedRule matches what a rule matches, with as few peers and ports as possible.
type MergedRule struct {
	// AnyPeer is set if the rule names no peers. Without it a rule without peers matches no pod.
	AnyPeer bool
	Peers   []MergedPeer
	// AnyPort is set if the rule names no ports: it matches every protocol.
	AnyPort bool
	Ports   []MergedPorts
}

// MergedPeer is either the pods or the nodes of one item of from or to, or all address blocks of the rule that are of
// one family, or all its domain names.
type MergedPeer struct {
	Block *ipblock.Union
	// Nodes is set for the addresses of nodes.
	Nodes *Selector
	// Names is set for the addresses of domain names: those of all items of the rule, sorted.
	Names []string
	// Namespace is the policy's own. It applies if Namespaces is nil.
	Namespace string
	// Namespaces is nil where there is no namespaceSelector.
	Namespaces *Selector
	Pods       Selector
}

// merge returns the rule with its blocks united by family, its ports merged by protocol, and without the peers that
// match nothing.
func (r Rule) merge() MergedRule {
	m := MergedRule{AnyPeer: len(r.Peers) == 0, AnyPort: len(r.Ports) == 0, Ports: mergePorts(r.Ports)}
	var blocks [len(npc.Families)][]ipblock.Block
	var names []string
	for _, p := range r.Peers {
		switch {
		case p.Block != nil:
			f := npc.FamilyOf(p.Block.CIDR.Addr())
			blocks[f] = append(blocks[f], *p.Block)
			continue
		case p.Nodes != nil:
			m.Peers = append(m.Peers, MergedPeer{Nodes: p.Nodes})
			continue
		case p.Name != "":
			names = append(names, p.Name)
			continue
		}
		merged := MergedPeer{Namespace: p.Namespace, Namespaces: p.Namespaces}
		if p.Pods != nil {
			merged.Pods = *p.Pods
		}
		if !p.IsUnknown() && !merged.Pods.nothing && (p.Namespaces == nil || !p.Namespaces.nothing) {
			m.Peers = append(m.Peers, merged)
		}
	}
	for _, of := range blocks {
		if len(of) > 0 {
			m.Peers = append(m.Peers, MergedPeer{Block: ipblock.Of(of)})
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		m.Peers = append(m.Peers, MergedPeer{Names: slices.Compact(names)})
	}
	return m
}

// Key returns texts that describe what the rule matches: rules with equal keys match the same.
func (r MergedRule) Key() []string {
	key := []string{strconv.FormatBool(r.AnyPeer), strconv.FormatBool(r.AnyPort)}
	for _, p := range r.Peers {
		key = append(key, p.key()...)
	}
	for _, p := range r.Ports {
		key = append(key, p.Match(), p.Name)
	}
	return key
}

func (p MergedPeer) key() []string {
	switch {
	case p.Block != nil:
		return append([]string{"block"}, p.Block.Key()...)
	case p.Nodes != nil:
		return []string{"nodes", p.Nodes.String()}
	case p.Names != nil:
		return append([]string{"names"}, p.Names...)
	case p.Namespaces == nil:
		return []string{"pods", p.Namespace, p.Pods.String()}
	}
	return []string{"namespaces", p.Namespaces.String(), p.Pods.String()}
}

// Digest returns a short text that identifies what the rule matches and what is done with it: rules with equal digests
// are the same.
func (r MergedRule) Digest(a Action) string {
	h := sha256.New()
	for _, part := range append(r.Key(), a.String()) {
		_, _ = fmt.Fprintf(h, "%d %s ", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Digest returns that of the merged rule, which accepts.
func (r Rule) Digest() string { return r.merge().Digest(Accept) }

// crossLimit is how many rules the peers of one rule of a policy may make with its ports. With more, its peers become
// one list of their sets. The kernel searches the list member by member, which takes as long as as many rules would,
// but only for packets whose port matches.
const crossLimit = 256

// Crosses reports whether the rule's peers have to become one list.
func (r MergedRule) Crosses() bool {
	return len(r.Peers) > 1 && len(r.Ports) > 1 && len(r.Peers)*len(r.Ports) > crossLimit
}

// cost returns what a rule needs, at most, beside the sets of peers in seen, to which it adds its own.
func (r MergedRule) cost(seen map[string]bool) (c quota.Cost) {
	named := 0
	for _, p := range r.Ports {
		if p.Name != "" {
			named++
		}
	}
	for _, p := range r.Peers {
		if p.Block != nil {
			c.Entries += len(p.Block.Entries)
			c.Sets++
		} else if key := strings.Join(p.key(), "\n"); !seen[key] {
			seen[key] = true
			c.Sets++
		}
	}
	if r.Crosses() {
		return c.Plus(quota.Cost{Rules: len(r.Ports), Sets: 1 + named, Entries: len(r.Peers)})
	}
	peers := max(len(r.Peers), 1)
	return c.Plus(quota.Cost{Rules: peers * max(len(r.Ports), 1), Sets: peers * named})
}
