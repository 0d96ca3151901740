package iptables

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Types of linux/netfilter/nf_tables.h and nf_tables_compat.h that package unix lacks.
const (
	nftTargetName  = 1 // NFTA_TARGET_NAME
	nftMatchName   = 1 // NFTA_MATCH_NAME
	nftMatchInfo   = 3 // NFTA_MATCH_INFO
	nftUserComment = 0 // NFTNL_UDATA_RULE_COMMENT
)

// nativeRule is what is understood of a rule of nft's without iptables.
type nativeRule struct {
	chain   string
	handle  uint64
	comment string
	target  string // ACCEPT, DROP, RETURN, the name of a chain or of a target; empty if the rule decides nothing
	goes    bool
}

// text is the rule as iptables would print it, without its matches.
func (r nativeRule) text() string {
	text := "-A " + r.chain
	if r.comment != "" {
		text += ` -m comment --comment "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(r.comment) + `"`
	}
	switch {
	case r.target == "":
		return text
	case r.goes:
		return text + " -g " + r.target
	}
	return text + " -j " + r.target
}

// readNative reads a table with rules that iptables cannot show: our chains one by one, what leads to them from nft itself. why is what
// kept iptables from it.
func (t *Table) readNative(prefix string, why error) (Seen, error) {
	seen := Seen{Chains: map[string]SeenChain{}, Hooks: map[string][]string{}, Policies: map[string]string{},
		Accepting: map[string]bool{}, Native: true}
	chains, err := t.nativeChains()
	if err != nil {
		return Seen{}, errors.Wrapf(err, "after: %v", why)
	}
	rules, err := t.nativeRules()
	if err != nil {
		return Seen{}, errors.Wrapf(err, "after: %v", why)
	}
	foreign := map[string][]string{}
	referrers := map[string]bool{}
	for _, name := range chains {
		switch {
		case slices.Contains([]string{"INPUT", "FORWARD", "OUTPUT"}, name):
			seen.Policies[name] = ""
			foreign[name] = nil
		case strings.HasPrefix(name, prefix):
			if seen.Chains[name], err = t.chainBesideNative(name); err != nil {
				return Seen{}, errors.Wrapf(err, "after: %v", why)
			}
		}
	}
	for _, r := range rules {
		if _, ours := seen.Chains[r.chain]; ours {
			continue
		}
		foreign[r.chain] = append(foreign[r.chain], r.text())
		referrers[r.chain] = referrers[r.chain] || strings.HasPrefix(r.target, prefix)
	}
	seen.findHooks(foreign, referrers)
	return seen, nil
}

// chainBesideNative reads a chain of ours. One that iptables cannot show has a rule that is not ours.
func (t *Table) chainBesideNative(name string) (SeenChain, error) {
	c, _, err := t.Chain(name)
	if err == nil || !unparsable(err.Error()) && !strings.Contains(err.Error(), "incompatible") {
		return c, err
	}
	const text = "a rule that iptables cannot show"
	return SeenChain{IDs: []string{"?" + text}, Text: []string{text}}, nil
}

// nftFamily is the family as nft numbers it.
func (t *Table) nftFamily() uint8 {
	if t.family == IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// nftDump asks nft for all objects of a kind in the filter table, and hands over the attributes of each.
func (t *Table) nftDump(command int, each func(map[uint16][]byte)) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|command, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: t.nftFamily(), Version: unix.NFNETLINK_V0})
	if command == unix.NFT_MSG_GETRULE {
		req.AddData(nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated("filter")))
	}
	replies, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return errors.Wrap(err, "asking nft for the filter table")
	}
	for _, reply := range replies {
		if len(reply) >= nl.SizeofNfgenmsg {
			each(attributes(reply[nl.SizeofNfgenmsg:]))
		}
	}
	return nil
}

// attributes are those of a message by their type; what cannot be read is left out.
func attributes(data []byte) map[uint16][]byte {
	out := map[uint16][]byte{}
	attrs, err := nl.ParseRouteAttr(data)
	if err != nil {
		return out
	}
	for _, a := range attrs {
		out[a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = a.Value
	}
	return out
}

func zeroTerminated(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

func (t *Table) nativeChains() (names []string, err error) {
	err = t.nftDump(unix.NFT_MSG_GETCHAIN, func(a map[uint16][]byte) {
		if zeroTerminated(a[unix.NFTA_CHAIN_TABLE]) == "filter" {
			names = append(names, zeroTerminated(a[unix.NFTA_CHAIN_NAME]))
		}
	})
	return names, err
}

func (t *Table) nativeRules() (rules []nativeRule, err error) {
	err = t.nftDump(unix.NFT_MSG_GETRULE, func(a map[uint16][]byte) {
		if zeroTerminated(a[unix.NFTA_RULE_TABLE]) == "filter" {
			rules = append(rules, parseNative(a))
		}
	})
	return rules, err
}

// parseNative understands of a rule what it leads to, and its comment.
func parseNative(a map[uint16][]byte) nativeRule {
	r := nativeRule{chain: zeroTerminated(a[unix.NFTA_RULE_CHAIN]), comment: userComment(a[unix.NFTA_RULE_USERDATA])}
	if h := a[unix.NFTA_RULE_HANDLE]; len(h) == 8 {
		r.handle = binary.BigEndian.Uint64(h)
	}
	elements, err := nl.ParseRouteAttr(a[unix.NFTA_RULE_EXPRESSIONS])
	if err != nil {
		return r
	}
	for _, e := range elements {
		expr := attributes(e.Value)
		data := attributes(expr[unix.NFTA_EXPR_DATA])
		switch zeroTerminated(expr[unix.NFTA_EXPR_NAME]) {
		case "immediate":
			r.verdict(attributes(attributes(data[unix.NFTA_IMMEDIATE_DATA])[unix.NFTA_DATA_VERDICT]))
		case "target":
			r.target = zeroTerminated(data[nftTargetName])
		case "lookup":
			if register := data[unix.NFTA_LOOKUP_DREG]; len(register) == 4 && binary.BigEndian.Uint32(register) == unix.NFT_REG_VERDICT {
				r.target = "ACCEPT" // a map of verdicts may hold it
			}
		case "match":
			if zeroTerminated(data[nftMatchName]) == "comment" {
				r.comment = zeroTerminated(data[nftMatchInfo])
			}
		}
	}
	return r
}

func (r *nativeRule) verdict(a map[uint16][]byte) {
	code := a[unix.NFTA_VERDICT_CODE]
	if len(code) != 4 {
		return
	}
	switch int32(binary.BigEndian.Uint32(code)) {
	case 1: // NF_ACCEPT
		r.target = "ACCEPT"
	case 0: // NF_DROP
		r.target = "DROP"
	case unix.NFT_RETURN:
		r.target = "RETURN"
	case unix.NFT_JUMP:
		r.target = zeroTerminated(a[unix.NFTA_VERDICT_CHAIN])
	case unix.NFT_GOTO:
		r.target, r.goes = zeroTerminated(a[unix.NFTA_VERDICT_CHAIN]), true
	}
}

// userComment finds the comment where later versions of iptables put it: a sequence of type, length and value.
func userComment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if data[0] == nftUserComment {
			return zeroTerminated(data[2 : 2+int(data[1])])
		}
		data = data[2+int(data[1]):]
	}
	return ""
}

// applyBesideNative applies an update to a table in which iptables can find no rule to delete, because it cannot read another one of
// that chain: our jumps are put first, then what is stale is deleted by its number.
func (t *Table) applyBesideNative(ctx context.Context, u Update) error {
	before, err := t.nativeRules()
	if err != nil {
		return err
	}
	var stale []nativeRule
	add := u
	add.Jumps = nil
	for _, j := range u.Jumps {
		for _, r := range before {
			if r.chain == j.Chain && slices.Contains(j.Stale, r.text()) {
				stale = append(stale, r)
			}
		}
		j.Stale = nil
		add.Jumps = append(add.Jumps, j)
	}
	if err := t.Apply(ctx, add); err != nil {
		return err
	}
	for _, r := range stale {
		if err := t.deleteNative(r); err != nil {
			return errors.Wrapf(err, "deleting %s", r.text())
		}
	}
	return nil
}

// deleteNative deletes a rule in a transaction of its own.
func (t *Table) deleteNative(r nativeRule) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return errors.Wrap(err, "opening a netlink socket")
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return errors.Wrap(err, "setting the timeout of a netlink socket")
	}
	message := func(kind, flags int, family uint8, resource uint16, attrs ...*nl.RtAttr) []byte {
		req := nl.NewNetlinkRequest(kind, flags)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: unix.NFNETLINK_V0, ResId: resource<<8 | resource>>8})
		for _, a := range attrs {
			req.AddData(a)
		}
		return req.Serialize()
	}
	batch := slices.Concat(
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELRULE, unix.NLM_F_ACK, t.nftFamily(), 0,
			nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated("filter")),
			nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(r.chain)),
			nl.NewRtAttr(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, r.handle))),
		message(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return errors.Wrap(err, "sending to nft")
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return errors.Wrap(err, "receiving from nft")
	}
	if n < unix.SizeofNlMsghdr+4 {
		return errors.New("the answer is too short")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}
