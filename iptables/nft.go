package iptables

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/google/nftables"
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

// nftFilter is the filter table of a family, read and changed through netlink instead of iptables' programs. It is used
// for tables with rules that these programs cannot show.
type nftFilter struct{ family Family }

// nftRule is the part of an nft rule that can be read without iptables.
type nftRule struct {
	chain   string
	handle  uint64
	comment string
	target  string // ACCEPT, DROP, RETURN, a chain or a target extension; empty if the rule decides nothing
	goes    bool   // goto instead of jump
}

// text returns the rule as iptables would print it, without its matches.
func (r nftRule) text() string {
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

// number returns the family's NFPROTO number.
func (f nftFilter) number() uint8 {
	if f.family == IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// dump asks the kernel for all objects of a kind and passes the attributes of each to each.
func (f nftFilter) dump(command int, each func(map[uint16][]byte)) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|command, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: f.number(), Version: unix.NFNETLINK_V0})
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

// attributes returns the attributes of a message by their type. It skips those that cannot be parsed.
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

// zeroTerminated returns the text before the first NUL.
func zeroTerminated(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// chains returns the names of the table's chains.
func (f nftFilter) chains() (names []string, err error) {
	err = f.dump(unix.NFT_MSG_GETCHAIN, func(a map[uint16][]byte) {
		if zeroTerminated(a[unix.NFTA_CHAIN_TABLE]) == "filter" {
			names = append(names, zeroTerminated(a[unix.NFTA_CHAIN_NAME]))
		}
	})
	return names, err
}

// rules returns the table's rules.
func (f nftFilter) rules() (rules []nftRule, err error) {
	err = f.dump(unix.NFT_MSG_GETRULE, func(a map[uint16][]byte) {
		if zeroTerminated(a[unix.NFTA_RULE_TABLE]) == "filter" {
			rules = append(rules, parseNFTRule(a))
		}
	})
	return rules, err
}

// parseNFTRule reads the chain, the handle, the comment and the target of a rule.
func parseNFTRule(a map[uint16][]byte) nftRule {
	r := nftRule{chain: zeroTerminated(a[unix.NFTA_RULE_CHAIN]), comment: userComment(a[unix.NFTA_RULE_USERDATA])}
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
			if register := data[unix.NFTA_LOOKUP_DREG]; len(register) == 4 &&
				binary.BigEndian.Uint32(register) == unix.NFT_REG_VERDICT {
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

// verdict reads the target of a verdict expression.
func (r *nftRule) verdict(a map[uint16][]byte) {
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

// userComment returns the comment in a rule's user data, which is where later versions of iptables put it: a sequence
// of type, length and value.
func userComment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if data[0] == nftUserComment {
			return zeroTerminated(data[2 : 2+int(data[1])])
		}
		data = data[2+int(data[1]):]
	}
	return ""
}

// delete deletes a rule in a transaction of its own.
func (f nftFilter) delete(r nftRule) error {
	table := &nftables.Table{Family: nftables.TableFamily(f.number()), Name: "filter"}
	conn := new(nftables.Conn)
	rule := &nftables.Rule{Table: table, Chain: &nftables.Chain{Name: r.chain}, Handle: r.handle}
	if err := conn.DelRule(rule); err != nil {
		return err
	}
	return conn.Flush()
}
