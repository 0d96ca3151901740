package npc

import (
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"regexp"
	"strings"
)

// setPrefix begins the name of every set of ours, and of those that the original weave-npc made.
const setPrefix = "weave-"

// chainPrefix begins the name of every chain of ours.
const chainPrefix = "WEAVE-NPC"

// layout is the version of the sets' and chains' meaning. It is part of every hashed name, so
// that a release that gives a set another meaning gives it another name as well.
const layout = "1"

// layoutPrefix begins the name of the empty chain that says which layout the kernel's sets and chains have. Without one they have layout 1, which
// had none at first.
const layoutPrefix = chainPrefix + "-LAYOUT-"

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// hash is the lower-case base32 form of the SHA1 of parts. Each part is preceded by its length,
// so that no two lists of parts make the same key.
func hash(parts ...string) string {
	h := sha1.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return nameEncoding.EncodeToString(h.Sum(nil))
}

// setName is the name of the set of a kind: 31 characters, the longest that the kernel takes.
func setName(f Family, parts ...string) string {
	return setPrefix + hash(append([]string{layout, f.String()}, parts...)...)[:25]
}

// fixedSetName is the name of a set that every node has.
func fixedSetName(f Family, name string) string {
	if f == IPv6 {
		return setPrefix + name + "-v6"
	}
	return setPrefix + name
}

// The sets that every node has, by their names without prefix and family.
const (
	localPodsName = "local-pods"
	podRangeName  = "pod-range"
	behindName    = "behind-uplinks"
	broadcastName = "broadcast"
)

func defaultAllowName(d Direction) string { return "default-allow-" + d.String() }
func gateName(d Direction) string         { return "gate-" + d.String() }

// ourSetName matches the names that setName and fixedSetName give.
var ourSetName = regexp.MustCompile(
	`^weave-(?:[a-z2-7]{25}|(?:local-pods|pod-range|behind-uplinks|broadcast|(?:default-allow|gate)-(?:ingress|egress))(?:-v6)?)$`)

// isOurSet says whether a set's name fits our naming scheme.
func isOurSet(name string) bool { return ourSetName.MatchString(name) }

// ancestorAlphabet are the digits in which the original weave-npc wrote SHA1 sums.
const ancestorAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789(){}[]+=_$%^!*|/?.;:@#~"

// isAncestorSet says whether a set's name is one that the original weave-npc gave. A SHA1 sum has
// 25 digits to that base, rarely fewer; less than 22 does not happen.
func isAncestorSet(name string) bool {
	digits, ok := strings.CutPrefix(name, setPrefix)
	return ok && len(digits) >= 22 && len(digits) <= 25 && strings.Trim(digits, ancestorAlphabet) == ""
}

// partChain is the name of the chain with the rules of a part of a namespace. Without digits that is all of it.
func partChain(d Direction, namespace, digits string) string {
	id := []string{"chain", namespace}
	if digits != "" {
		id = append(id, digits)
	}
	return branchChain(d, hash(id...)[:16])
}

// partSet is the name of the set of the pods whose rules are there.
func partSet(f Family, d Direction, namespace, digits string) string {
	id := []string{"isolated", d.String(), namespace}
	if digits != "" {
		id = append(id, digits)
	}
	return setName(f, id...)
}

// branchChain is the name of a chain on the way to those of parts. Hashes have neither the digit 0 nor 1.
func branchChain(d Direction, bits string) string {
	if d == Egress {
		return chainPrefix + "-E-" + bits
	}
	return chainPrefix + "-I-" + bits
}
