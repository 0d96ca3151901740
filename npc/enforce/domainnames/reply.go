package domainnames

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/net/dns/dnsmessage"
)

const (
	// longestTTL bounds the lifetime of an address, whatever an answer says.
	longestTTL = time.Hour
	// longestName is what fits into the comment of a set's element, and longer than any name that can be looked up.
	longestName = 253
	// maxNamesCounted is how many names of a chain addresses count for: more than resolvers follow.
	maxNamesCounted = 16
)

// reply is what the answer to one question says.
type reply struct {
	// chain has the question's name, the name that it is an alias of, and so on.
	chain   []string
	found   []found
	surplus int // addresses that are left out
}

// found is an address in a reply.
type found struct {
	addr netip.Addr
	ttl  time.Duration // the least of the address and of the aliases before it
	link int           // index in chain of the name that has it
}

// record is a resource record of a kind that matters.
type record struct {
	ttl   time.Duration
	alias string // of a CNAME, or of an HTTPS or SVCB record in alias mode; then there are no addresses
	cname bool
	addrs []netip.Addr
}

// parseReply reads a DNS message. It returns false for what is no successful answer to exactly one question of class
// IN. Records that cannot be read, those of names that the question's name is no alias of, and those of other sections
// are left out: a pod may use the others.
func parseReply(message []byte) (reply, bool) {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil || !h.Response || h.OpCode != 0 || h.RCode != dnsmessage.RCodeSuccess {
		return reply{}, false
	}
	question, err := p.Question()
	if err != nil || question.Class != dnsmessage.ClassINET {
		return reply{}, false
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return reply{}, false
	}
	records := map[string][]record{}
	for {
		name, r, err := parseRecord(&p)
		if err != nil && p.SkipAnswer() != nil { // there is no other
			return follow(hostName(question.Name), records), true
		}
		if err == nil {
			records[name] = append(records[name], r)
		}
	}
}

// parseRecord reads a record with its name; what does not matter of it is empty.
func parseRecord(p *dnsmessage.Parser) (name string, r record, err error) {
	h, err := p.AnswerHeader()
	switch {
	case err != nil:
		return "", r, err
	case h.Class != dnsmessage.ClassINET:
		return "", r, p.SkipAnswer()
	case h.TTL < 1<<31: // RFC 2181: more counts as 0
		r.ttl = min(time.Duration(h.TTL)*time.Second, longestTTL)
	}
	switch name = hostName(h.Name); h.Type {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA: // whose own methods read as many bytes as they want, not as there are
		raw, err := p.UnknownResource()
		if a, _ := netip.AddrFromSlice(raw.Data); a.Is4() == (h.Type == dnsmessage.TypeA) && a.IsValid() {
			r.add(a)
		}
		return name, r, err
	case dnsmessage.TypeCNAME:
		c, err := p.CNAMEResource()
		r.alias, r.cname = hostName(c.CNAME), true
		return name, r, err
	case dnsmessage.TypeSVCB:
		s, err := p.SVCBResource()
		r.service(s)
		return name, r, err
	case dnsmessage.TypeHTTPS:
		s, err := p.HTTPSResource()
		r.service(s.SVCBResource)
		return name, r, err
	}
	return name, r, p.SkipAnswer()
}

// add takes an address, unless a set cannot hold it or no IPv6 packet has it.
func (r *record) add(a netip.Addr) {
	if !a.IsUnspecified() && !a.Is4In6() {
		r.addrs = append(r.addrs, a)
	}
}

// service reads an HTTPS or SVCB record: an alias, or hints of the service's addresses.
func (r *record) service(s dnsmessage.SVCBResource) {
	if s.Priority == 0 {
		r.alias = hostName(s.Target)
		return
	}
	for _, hint := range []struct {
		key  dnsmessage.SVCParamKey
		size int
	}{{dnsmessage.SVCParamIPv4Hint, 4}, {dnsmessage.SVCParamIPv6Hint, 16}} {
		value, _ := s.GetParam(hint.key)
		for ; len(value) >= hint.size; value = value[hint.size:] {
			a, _ := netip.AddrFromSlice(value[:hint.size])
			r.add(a)
		}
	}
}

// follow follows aliases from a name. It ends where a name comes again.
func follow(name string, records map[string][]record) reply {
	var out reply
	ttl, seen := longestTTL, map[string]bool{}
	for name != "" && !seen[name] {
		seen[name] = true
		var next record
		for _, r := range records[name] {
			if r.alias != "" && (next.alias == "" || r.cname && !next.cname) {
				next = r
			}
			for _, a := range r.addrs {
				out.add(found{a, min(ttl, r.ttl), len(out.chain)})
			}
		}
		out.chain = append(out.chain, name)
		if next.alias != "" {
			ttl = min(ttl, next.ttl)
		}
		name = next.alias
	}
	return out
}

// add takes an address once for each name that has it, and no more than are held of a name.
func (r *reply) add(f found) {
	i := slices.IndexFunc(r.found, func(o found) bool { return o.addr == f.addr && o.link == f.link })
	switch {
	case i >= 0:
		r.found[i].ttl = max(r.found[i].ttl, f.ttl)
	case len(r.found) < maxAddresses:
		r.found = append(r.found, f)
	default:
		r.surplus++
	}
}

// names returns the names that the addresses count for: the question's and, as long as names lie in the cluster's own
// domain, the next one. There CoreDNS (autopath) answers the first name of a search list with an alias of the last;
// elsewhere whoever owns a name could make it an alias of a listed one.
func (r reply) names(domain string) []string {
	for i, name := range r.chain {
		if !isBelow(name, domain) || i == maxNamesCounted-1 {
			return r.chain[:i+1]
		}
	}
	return r.chain
}

// isBelow reports whether a name lies in a domain; none lies in an empty one.
func isBelow(name, domain string) bool { return domain != "" && strings.HasSuffix(name, "."+domain) }

// hostName returns a name in lower case without its final dot; of the root it is empty.
func hostName(n dnsmessage.Name) string {
	raw := n.Data[:n.Length]
	lower := make([]byte, 0, len(raw))
	for _, c := range raw {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower = append(lower, c)
	}
	return strings.TrimSuffix(string(lower), ".")
}

// plain reports whether a name can be a host's, and so can stand in a comment as it is.
func plain(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return name != "" && name[0] != '.' && len(name) <= longestName
}
