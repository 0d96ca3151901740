// Package naming gives sets and chains their names, and recognizes sets of this program and of the original weave-npc by theirs.
package naming

import (
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"regexp"
	"strings"

	"github.com/weave-npc/weave-npc/npc/traffic"
)

// SetPrefix begins the name of every set of ours, and of those that the original weave-npc made.
const SetPrefix = "weave-"

// ChainPrefix begins the name of every chain of ours.
const ChainPrefix = "WEAVE-NPC"

// Layout is the version of the sets' and chains' meaning. It is part of every hashed name, so
// that a release that gives a set another meaning gives it another name as well.
const Layout = "1"

// LayoutPrefix begins the name of the empty chain that says which layout the kernel's sets and chains have. Without one they have layout 1, which
// had none at first.
const LayoutPrefix = ChainPrefix + "-LAYOUT-"

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Hash returns the lower-case base32 form of the SHA1 of parts. Each part is preceded by its length,
// so that no two lists of parts make the same key.
func Hash(parts ...string) string {
	h := sha1.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return nameEncoding.EncodeToString(h.Sum(nil))
}

// Set is the name of the set of a kind: 31 characters, the longest that the kernel takes.
func Set(f traffic.Family, parts ...string) string {
	return SetPrefix + Hash(append([]string{Layout, f.String()}, parts...)...)[:25]
}

// FixedSet is the name of a set that every node has.
func FixedSet(f traffic.Family, name string) string {
	if f == traffic.IPv6 {
		return SetPrefix + name + "-v6"
	}
	return SetPrefix + name
}

// The sets that every node has, by their names without prefix and family.
const (
	LocalPods     = "local-pods"
	PodRange      = "pod-range"
	BehindUplinks = "behind-uplinks"
	Broadcast     = "broadcast"
)

// DefaultAllow returns the name, as above, of the set of the local pods that nothing isolates in a direction.
func DefaultAllow(d traffic.Direction) string { return "default-allow-" + d.String() }

// Gate returns that of the set of the unknown addresses that are dropped in a direction.
func Gate(d traffic.Direction) string { return "gate-" + d.String() }

// ourSetName matches the names that Set and FixedSet give.
var ourSetName = regexp.MustCompile(
	`^weave-(?:[a-z2-7]{25}|(?:local-pods|pod-range|behind-uplinks|broadcast|(?:default-allow|gate)-(?:ingress|egress))(?:-v6)?)$`)

// IsOurSet reports whether a set's name fits our naming scheme.
func IsOurSet(name string) bool { return ourSetName.MatchString(name) }

// ancestorAlphabet are the digits in which the original weave-npc wrote SHA1 sums.
const ancestorAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789(){}[]+=_$%^!*|/?.;:@#~"

// IsAncestorSet reports whether a set's name is one that the original weave-npc gave. A SHA1 sum has
// 25 digits to that base, rarely fewer; less than 22 does not happen.
func IsAncestorSet(name string) bool {
	digits, ok := strings.CutPrefix(name, SetPrefix)
	return ok && len(digits) >= 22 && len(digits) <= 25 && strings.Trim(digits, ancestorAlphabet) == ""
}

// PartChain is the name of the chain with the rules of a part of a namespace. Without digits that is all of it.
func PartChain(d traffic.Direction, namespace, digits string) string {
	id := []string{"chain", namespace}
	if digits != "" {
		id = append(id, digits)
	}
	return BranchChain(d, Hash(id...)[:16])
}

// PartSet is the name of the set of the pods whose rules are there.
func PartSet(f traffic.Family, d traffic.Direction, namespace, digits string) string {
	id := []string{"isolated", d.String(), namespace}
	if digits != "" {
		id = append(id, digits)
	}
	return Set(f, id...)
}

// BranchChain is the name of a chain on the way to those of parts. Hashes have neither the digit 0 nor 1.
func BranchChain(d traffic.Direction, bits string) string {
	if d == traffic.Egress {
		return ChainPrefix + "-E-" + bits
	}
	return ChainPrefix + "-I-" + bits
}

// The chains that every node has.
const (
	HookChain          = "FORWARD"
	ForwardChain       = ChainPrefix + "-FORWARD"
	MainChain          = ChainPrefix
	DefaultChain       = ChainPrefix + "-DEFAULT"
	IngressChain       = ChainPrefix + "-INGRESS"
	EgressChain        = ChainPrefix + "-EGRESS"
	EgressDefaultChain = ChainPrefix + "-EGRESS-DEFAULT"
	EgressCustomChain  = ChainPrefix + "-EGRESS-CUSTOM"
	BroadcastChain     = ChainPrefix + "-BROADCAST"
)

// IsolatedChain returns the chain for packets that default-allow does not let pass.
func IsolatedChain(d traffic.Direction) string {
	if d == traffic.Egress {
		return EgressCustomChain
	}
	return IngressChain
}

// DropChain is the chain that reports and drops a packet.
func DropChain(d traffic.Direction) string {
	if d == traffic.Egress {
		return ChainPrefix + "-DROP-EGRESS"
	}
	return ChainPrefix + "-DROP-INGRESS"
}

// RepliesChain is the chain for packets that do not open a connection and came past WEAVE-NPC-FORWARD all the same.
func RepliesChain(d traffic.Direction) string {
	if d == traffic.Egress {
		return ChainPrefix + "-EGRESS-REPLIES"
	}
	return ChainPrefix + "-REPLIES"
}

// Match returns the iptables match for packets with an end, or ends, in a set.
func Match(set, dir string) string { return "-m set --match-set " + set + " " + dir }
