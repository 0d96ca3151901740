package iptables

import (
	"cmp"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// maxComment is the maximum length of a comment in bytes, id included. Both backends cut silently at 255.
const maxComment = 200

// Rule is one rule of a chain. The kernel prints a rule in another form than it was given (order of matches, masks,
// defaults), so a rule is recognized by the id at the start of its comment.
type Rule struct {
	// Match holds iptables arguments without chain, comment and target, for example
	// `-m set --match-set weave-x src -p tcp -m tcp --dport 80`.
	Match string
	// Target holds the target's arguments, for example `-j ACCEPT` or `-g WEAVE-NPC-DROP-INGRESS`. A rule without a
	// target only counts packets.
	Target string
	// Comment is for humans. String sanitizes it.
	Comment string
	// Order is the first sort key of rules whose order has no meaning; the text is the second. It is no part of the
	// rule.
	Order int
	// Instead, if not nil, takes the rule's place if the kernel rejects it. Without it the rule is left out. It is no
	// part of the rule.
	Instead *Rule
	// Printed, if not empty, is the rule as the kernel prints it, without command and chain. Such a rule is written
	// back unchanged; Target is its target, Match and Comment are empty.
	Printed string
}

// Found returns a rule that the kernel printed ("-A CHAIN ...") as a Rule to be kept. ok is false for a rule without an
// id: another program wrote it.
func Found(printed string) (r Rule, ok bool) {
	found, err := parseRule(printed)
	if err != nil || commentID(found.comment) == "" {
		return Rule{}, false
	}
	r.Printed = strings.TrimPrefix(printed, "-A "+found.chain+" ")
	if words := strings.Fields(printed); len(words) >= 2 && words[len(words)-1] == found.target {
		r.Target = strings.Join(words[len(words)-2:], " ")
	}
	return r, true
}

// Sets returns the names of the sets that a rule matches.
func (r Rule) Sets() []string {
	words, err := Words(cmp.Or(r.Printed, r.Match))
	if err != nil {
		return nil
	}
	var names []string
	for i, word := range words[:max(len(words)-1, 0)] {
		if word == "--match-set" {
			names = append(names, words[i+1])
		}
	}
	return names
}

var idEncoding = base32.NewEncoding(idAlphabet)

// ID returns the id of the rule: ten characters of lower-case base32 of SHA1 over Match, Target and Comment.
func (r Rule) ID() string {
	if r.Printed != "" {
		return RuleID("-A x " + r.Printed)
	}
	key := make([]byte, 0, 512)
	for _, field := range [...]string{r.Match, r.Target, r.Comment} {
		key = binary.BigEndian.AppendUint64(key, uint64(len(field)))
		key = append(key, field...)
	}
	sum := sha1.Sum(key)
	var text [sha1.Size * 8 / 5]byte
	idEncoding.Encode(text[:], sum[:])
	return string(text[:idLen])
}

// String returns the rule as iptables arguments, without command and chain:
// `<Match> -m comment --comment "<id> <comment>" <Target>`.
func (r Rule) String() string {
	if r.Printed != "" {
		return r.Printed
	}
	var b strings.Builder
	if r.Match != "" {
		b.WriteString(r.Match)
		b.WriteByte(' ')
	}
	b.WriteString(`-m comment --comment "`)
	b.WriteString(r.ID())
	if comment := Comment(r.Comment); comment != "" {
		b.WriteByte(' ')
		b.WriteString(comment)
	}
	b.WriteByte('"')
	if r.Target != "" {
		b.WriteByte(' ')
		b.WriteString(r.Target)
	}
	return b.String()
}

// Comment joins parts with spaces into a text that is safe between double quotes in iptables-restore input: every
// character outside [A-Za-z0-9 ._/:=-] becomes "?", and a text that is too long next to an id is truncated with "..".
func Comment(parts ...string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z', r >= '0' && r <= '9', strings.ContainsRune(" ._/:=-", r):
			return r
		}
		return '?'
	}, strings.Join(parts, " "))
	const limit = maxComment - idLen - len(" ")
	if len(clean) > limit {
		clean = clean[:limit-len("..")] + ".."
	}
	return strings.TrimSpace(clean)
}

// HairpinIPv4 and HairpinIPv6 are classic BPF programs for `-m bpf --bytecode "..."` that match packets with equal
// source and destination addresses. Together with `-m conntrack --ctstate DNAT` one rule matches every pod that reaches
// itself through a Service. The programs start at the network header and compare the addresses word by word (bytes 12
// and 16 of the IPv4 header, RFC 791; 8 and 24 of the IPv6 header, RFC 8200):
//
//	ld [src]; tax; ld [dst]; jeq x, next, no   (once for IPv4, four times for IPv6)
//	ret 65535
//	no: ret 0
const (
	HairpinIPv4 = "6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 65535,6 0 0 0"
	HairpinIPv6 = "18," +
		"32 0 0 8,7 0 0 0,32 0 0 24,29 0 13 0," +
		"32 0 0 12,7 0 0 0,32 0 0 28,29 0 9 0," +
		"32 0 0 16,7 0 0 0,32 0 0 32,29 0 5 0," +
		"32 0 0 20,7 0 0 0,32 0 0 36,29 0 1 0," +
		"6 0 0 65535,6 0 0 0"
)

// OwnErrorIPv4 and OwnErrorIPv6 are programs of the same kind. They match ICMP errors whose source is the destination
// of the packet that they quote. The caller has to make sure that the packet is an ICMP error.
//
// The quoted header follows eight bytes of ICMP (RFC 792, RFC 4443); its destination is at a fixed place whatever
// follows it. The IPv4 program skips options of the outer header. The IPv6 one does not match a packet with an
// extension header before ICMPv6.
//
//	ldx 4*([0]&0xf); ld [x+24]; tax; ld [12]; jeq x, yes, no      (IPv4)
//	ldb [6]; jeq #58, next, no                                    (IPv6)
//	ld [src]; tax; ld [quoted dst]; jeq x, next, no               (IPv6, four times)
const (
	OwnErrorIPv4 = "7,177 0 0 0,64 0 0 24,7 0 0 0,32 0 0 12,29 0 1 0,6 0 0 65535,6 0 0 0"
	OwnErrorIPv6 = "20,48 0 0 6,21 0 17 58," +
		"32 0 0 8,7 0 0 0,32 0 0 72,29 0 13 0," +
		"32 0 0 12,7 0 0 0,32 0 0 76,29 0 9 0," +
		"32 0 0 16,7 0 0 0,32 0 0 80,29 0 5 0," +
		"32 0 0 20,7 0 0 0,32 0 0 84,29 0 1 0," +
		"6 0 0 65535,6 0 0 0"
)
