// Package naming defines the names of sets and chains, and translates IP families to those of the kernel's tables.
//
// It recognizes sets of this program and of the original weave-npc by their names. It knows nothing about their
// contents.
//
//	naming.Set(npc.IPv4, "selector", "app=web")      // weave- and 25 characters
//	naming.FixedSet(npc.IPv6, naming.LocalPods)      // weave-local-pods-v6
//	naming.DropChain(npc.Ingress)                    // WEAVE-NPC-DROP-INGRESS
package naming

import (
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
)

// SetPrefix begins the names of all sets of this program and of the original weave-npc.
const SetPrefix = "weave-"

// ChainPrefix begins the names of all chains of this program.
const ChainPrefix = "WEAVE-NPC"

// ScratchChain is for trying rules that the kernel may reject, and an edited chain must not jump to it. No rule in
// force jumps there.
const ScratchChain = ChainPrefix + "-TRY"

// Layout is the version of the meaning of sets and chains. It is part of every hashed name, so that a release that
// changes the meaning of a set also changes its name.
const Layout = "1"

// LayoutPrefix begins the name of the empty chain that marks the layout of the sets and chains in the kernel. Without
// such a chain they have layout 1, which had no marker at first.
const LayoutPrefix = ChainPrefix + "-LAYOUT-"

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Hash returns the lower-case base32 form of the SHA1 of parts. Each part is preceded by its length,
// so that no two lists of parts make the same key.
func Hash(parts ...string) string {
	key := make([]byte, 0, 256)
	for _, p := range parts {
		key = binary.BigEndian.AppendUint64(key, uint64(len(p)))
		key = append(key, p...)
	}
	sum := sha1.Sum(key)
	return nameEncoding.EncodeToString(sum[:])
}

// Set returns the name of the set with the given key: 31 characters, the maximum of the kernel.
func Set(f npc.Family, parts ...string) string {
	return SetPrefix + Hash(append([]string{Layout, f.String()}, parts...)...)[:25]
}

// FixedSet returns the name of a set that every node has.
func FixedSet(f npc.Family, name string) string {
	if f == npc.IPv6 {
		return SetPrefix + name + "-v6"
	}
	return SetPrefix + name
}

// The names, without prefix and family, of sets that every node has.
const (
	LocalPods     = "local-pods"
	PodRange      = "pod-range"
	BehindUplinks = "behind-uplinks"
	Broadcast     = "broadcast"
	// Closed are local pods whose packets to the node itself are dropped.
	Closed = "closed"
	// Alive holds every address while weave-npc runs, and Unattended those that are dropped while it does not.
	Alive      = "alive"
	Unattended = "unattended"
	// DNSPods are the local pods that may reach domain names, DNSResolvers the resolvers that the operator trusts, and
	// DNSAlive holds every address while answers of resolvers are learned.
	DNSPods      = "dns-pods"
	DNSResolvers = "dns-resolvers"
	DNSAlive     = "dns-alive"
)

// AliveTimeout is the number of seconds after which nothing is left in the sets Alive and DNSAlive that was not renewed.
const AliveTimeout = 5

// LearnedTimeout is the number of seconds after which learned addresses leave their sets that were given no other.
const LearnedTimeout = 600

// PastTimeout is how long the kernel keeps that an address was learned, in seconds: connections to it may outlast its
// time. The kernel takes at most 24 days and some hours.
const PastTimeout = 24 * 24 * 3600

// DefaultAllow returns the name, without prefix and family, of the set of the local pods that no policy isolates in a
// direction.
func DefaultAllow(d npc.Direction) string { return "default-allow-" + d.String() }

// FailClosed returns the name, without prefix and family, of the set of the unknown addresses that are dropped in a
// direction.
func FailClosed(d npc.Direction) string { return "fail-closed-" + d.String() }

// ourSetName matches the names that Set and FixedSet return.
var ourSetName = regexp.MustCompile(
	`^weave-(?:[a-z2-7]{25}|` +
		`(?:local-pods|pod-range|behind-uplinks|broadcast|closed|alive|unattended|dns-(?:pods|resolvers|alive)|` +
		`(?:default-allow|fail-closed|admin|baseline)-(?:ingress|egress))(?:-v6)?)$`)

// IsOurSet reports whether a set of this program can have the name.
func IsOurSet(name string) bool { return ourSetName.MatchString(name) }

// ancestorAlphabet holds the digits of SHA1 sums in names of the original weave-npc.
const ancestorAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789(){}[]+=_$%^!*|/?.;:@#~"

// IsAncestorSet reports whether a set of the original weave-npc can have the name. A SHA1 sum has 25 digits to that
// base, rarely fewer, and never less than 22.
func IsAncestorSet(name string) bool {
	digits, ok := strings.CutPrefix(name, SetPrefix)
	return ok && len(digits) >= 22 && len(digits) <= 25 && strings.Trim(digits, ancestorAlphabet) == ""
}

// ShardChain returns the name of the chain with the rules of one shard of a namespace. Without digits the shard is the
// whole namespace.
func ShardChain(d npc.Direction, namespace, digits string) string {
	id := []string{"chain", namespace}
	if digits != "" {
		id = append(id, digits)
	}
	return NodeChain(d, Hash(id...)[:16])
}

// ShardSet returns the name of the set of the pods of a shard.
func ShardSet(f npc.Family, d npc.Direction, namespace, digits string) string {
	id := []string{"isolated", d.String(), namespace}
	if digits != "" {
		id = append(id, digits)
	}
	return Set(f, id...)
}

// NodeChain returns the name of a node of the dispatch tree, which leads to the chains of shards. Hashes contain
// neither 0 nor 1.
func NodeChain(d npc.Direction, bits string) string {
	if d == npc.Egress {
		return ChainPrefix + "-E-" + bits
	}
	return ChainPrefix + "-I-" + bits
}

// The chains that every node has.
const (
	HookChain          = "FORWARD"
	NodeHookChain      = "INPUT"
	NodeOutHookChain   = "OUTPUT"
	ForwardChain       = ChainPrefix + "-FORWARD"
	InputChain         = ChainPrefix + "-INPUT"
	MainChain          = ChainPrefix
	DefaultChain       = ChainPrefix + "-DEFAULT"
	IngressChain       = ChainPrefix + "-INGRESS"
	EgressChain        = ChainPrefix + "-EGRESS"
	EgressDefaultChain = ChainPrefix + "-EGRESS-DEFAULT"
	EgressCustomChain  = ChainPrefix + "-EGRESS-CUSTOM"
	BroadcastChain     = ChainPrefix + "-BROADCAST"
	TerminateChain     = ChainPrefix + "-TERMINATE"
	DNSChain           = ChainPrefix + "-DNS"
	DNSHoldChain       = ChainPrefix + "-DNS-HOLD"
)

// IsolatedChain returns the chain for packets that default-allow does not let pass.
func IsolatedChain(d npc.Direction) string {
	if d == npc.Egress {
		return EgressCustomChain
	}
	return IngressChain
}

// NewChain returns the chain for new connections, which asks default-allow.
func NewChain(d npc.Direction) string {
	if d == npc.Egress {
		return EgressDefaultChain
	}
	return DefaultChain
}

// TierChain returns the chain that leads to the lists of policies of a tier.
func TierChain(tier string, d npc.Direction) string {
	return ChainPrefix + "-" + strings.ToUpper(tier) + "-" + strings.ToUpper(d.String())
}

// TierSet returns the name of the set of the local pods that policies of a tier choose, without its family.
func TierSet(tier string, d npc.Direction) string {
	return strings.ToLower(tier) + "-" + d.String()
}

// ListPrefix begins the names of the chains with the rules of lists of policies of a tier.
func ListPrefix(tier string) string { return ChainPrefix + "-" + strings.ToUpper(tier[:1]) + "-" }

// ListChain returns the name of the chain with the rules of a list of policies of a tier.
func ListChain(tier string, d npc.Direction, id string) string {
	return ListPrefix(tier) + Hash("list", tier, d.String(), id)[:16]
}

// ListSet returns the name of the set of the local pods that a list of policies of a tier is for.
func ListSet(f npc.Family, tier string, d npc.Direction, id string) string {
	return Set(f, "list", tier, d.String(), id)
}

// SubjectSet returns the name of the set of the local pods that a policy of a shared list selects.
func SubjectSet(f npc.Family, d npc.Direction, id string) string {
	return Set(f, "subject", d.String(), id)
}

// DropChain returns the chain that reports and drops packets.
func DropChain(d npc.Direction) string {
	if d == npc.Egress {
		return ChainPrefix + "-DROP-EGRESS"
	}
	return ChainPrefix + "-DROP-INGRESS"
}

// RepliesChain returns the chain for packets that do not open a connection and were not handled by WEAVE-NPC-FORWARD.
func RepliesChain(d npc.Direction) string {
	if d == npc.Egress {
		return ChainPrefix + "-EGRESS-REPLIES"
	}
	return ChainPrefix + "-REPLIES"
}

// Match returns the iptables match for packets with an address in a set. dir is src or dst, as in --match-set.
func Match(set, dir string) string { return "-m set --match-set " + set + " " + dir }

// Join returns the match for packets that two matches, which may be empty, both match.
func Join(a, b string) string { return strings.TrimSpace(a + " " + b) }

// NoMatch returns the iptables match for all other packets.
func NoMatch(set, dir string) string { return "-m set ! --match-set " + set + " " + dir }

// MaxNamed is how many of several things a comment names.
const MaxNamed = 3

// Few joins names as a comment has them, at most MaxNamed of them.
func Few(names []string) string {
	if more := len(names) - MaxNamed; more > 0 {
		names = append(names[:MaxNamed:MaxNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, " / ")
}
