package input

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// Connection is the ends and the port of a connection, as commands take them. Each may be missing.
type Connection struct{ From, To, Port string }

// Or returns the connection with what is missing from another one.
func (c Connection) Or(d Connection) Connection {
	for _, f := range []struct{ to, from *string }{{&c.From, &d.From}, {&c.To, &d.To}, {&c.Port, &d.Port}} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
	return c
}

// FromLine reads a connection from a line as it is printed: of weave-npc's log about what was blocked or what staged
// policies would do, of flows, as a table or as JSON, of conntrack or of the kernel. The port may be missing, as in a
// line about a fragment. Whether the pods exist is not checked.
func FromLine(text string) (c Connection, err error) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "\n") {
		return c, errors.New("the text has several lines: give one of them")
	}
	_, inBraces, isObject := strings.Cut(text, `{"`)
	switch {
	case isObject:
		c, err = object(`{"` + inBraces)
	case hasCells(text):
		c = cells(text)
	default:
		c, err = fields(text).connection(text)
	}
	switch {
	case err != nil:
		return c, err
	case c.From == "" || c.To == "":
		return c, errors.Errorf("%q is no line about a connection: neither a log line with from and to, "+
			"or src and dst, nor a record of flows; without a line, give --from, --to and --port", shortened(text))
	}
	return c, nil
}

// shortened returns the beginning of a text.
func shortened(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

// object reads a line in JSON: of the log, or a record of flows.
func object(text string) (c Connection, err error) {
	var line map[string]any
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		return c, errors.New("the line is no JSON: give all of it, from the first brace to the last")
	}
	if _, isRecord := line["from"].(map[string]any); !isRecord {
		of := values{}
		for key, value := range line {
			if text, ok := value.(string); ok {
				of[key] = text
			}
		}
		return of.connection(text)
	}
	skipped, err := flowlog.Read(strings.NewReader(text), func(r flowlog.Record) error {
		c = Connection{recordEnd(r.From), recordEnd(r.To), r.Port.String()}
		return nil
	})
	return c, errors.Wrap(cmp.Or(err, skipped.First), "the record of flows")
}

// recordEnd returns an end of a record: the pod that was seen last, or the address.
func recordEnd(e flowlog.End) string {
	if e.IsPod() && e.Pod != "" {
		return e.Namespace + "/" + e.Pod
	}
	end, _ := ParseEnd(e.String())
	return end
}

// The columns of flows as a table: LAST (which has a blank), VERDICT, FROM, TO, PORT.
const (
	verdictCell = 1
	fromCell    = 2
	toCell      = 3
	portCell    = 4
)

// split returns the cells of a line of a table, which two blanks or more separate.
func split(text string) (out []string) {
	for cell := range strings.SplitSeq(text, "  ") {
		if cell = strings.TrimSpace(cell); cell != "" {
			out = append(out, cell)
		}
	}
	return out
}

// hasCells reports whether a line is one of flows as a table.
func hasCells(text string) bool {
	of := split(text)
	return len(of) > portCell &&
		(of[verdictCell] == string(flowlog.Allowed) || of[verdictCell] == string(flowlog.Denied))
}

// cells reads a line of flows as a table.
func cells(text string) (c Connection) {
	of := split(text)
	c.From, _ = ParseEnd(of[fromCell])
	c.To, _ = ParseEnd(of[toCell])
	c.Port, _, _ = strings.Cut(of[portCell], " ") // then its names
	return c
}

// values are the values of a line by their keys in lower case. Of several with one key the first counts: conntrack
// prints the direction that opened the connection first.
type values map[string]string

// fields reads what a line has as key=value or key="value".
func fields(text string) values {
	of := values{}
	for text != "" {
		word := text
		if i := strings.IndexAny(text, " \t"); i >= 0 {
			word = text[:i]
		}
		key, value, found := strings.Cut(word, "=")
		rest := text[len(word):]
		if quoted, err := strconv.QuotedPrefix(text[min(len(key)+1, len(text)):]); found && err == nil {
			value, _ = strconv.Unquote(quoted)
			rest = text[len(key)+1+len(quoted):]
		}
		if key = strings.ToLower(key); found && of[key] == "" {
			of[key] = value
		}
		text = strings.TrimLeft(rest, " \t")
	}
	return of
}

// first returns the first value that is set.
func (v values) first(keys ...string) string {
	for _, key := range keys {
		if v[key] != "" {
			return v[key]
		}
	}
	return ""
}

// connection returns the connection that the values of a line describe.
func (v values) connection(line string) (c Connection, err error) {
	c.From, _ = ParseEnd(v.first("from", "src"))
	var port string
	c.To, port = ParseEnd(v.first("to", "dst"))
	protocol := v.first("protocol", "proto")
	if protocol == "" {
		protocol, _, _ = strings.Cut(line, " ") // as conntrack prints it
	}
	if c.Port = v["port"]; c.Port == "" && c.To != "" {
		if c.Port, err = portOf(protocol, v.first("dport", "dpt")); err == nil && c.Port == "" {
			c.Port, err = portOf(protocol, port)
		}
	}
	return c, err
}

// portOf returns a protocol and a port as commands take them; empty if the port is missing.
func portOf(protocol, port string) (string, error) {
	switch protocol = strings.ToLower(protocol); {
	case protocol == "icmp" || protocol == "icmpv6":
		return "icmp", nil
	case port == "":
		return "", nil
	}
	s, err := flow.ParseService(protocol + "/" + port)
	return s.String(), errors.Wrap(err, "the line")
}

// ParseEnd reads an end as lines have it: a pod or an address, with a port, or with an address in parentheses. The port
// is empty if there is none.
func ParseEnd(text string) (end, port string) {
	text = value(text, "from", "to", "src", "dst")
	name, inside, both := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	name = strings.TrimSpace(name)
	if both && strings.HasSuffix(text, ")") {
		words := strings.Fields(inside)
		if len(words) == 0 {
			return text, ""
		}
		addr, port := address(words[len(words)-1])
		switch namespace, _, workload := strings.Cut(name, "/"); {
		case name == "node":
			return addr, port
		case workload && len(words) > 1: // the pod of a workload
			return namespace + "/" + words[0], port
		}
		return name, port
	}
	return address(strings.TrimPrefix(text, "node "))
}

// address separates an address or a name from its port.
func address(text string) (addr, port string) {
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr().String(), strconv.Itoa(int(a.Port()))
	}
	name, port, _ := strings.Cut(text, ":")
	if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 && name != "" {
		return name, port
	}
	return text, ""
}

// value returns a text without the key that stands before it in a line.
func value(text string, keys ...string) string {
	text = strings.TrimSpace(text)
	for _, key := range keys {
		if len(text) > len(key) && strings.EqualFold(text[:len(key)+1], key+"=") {
			return fields(text)[key]
		}
	}
	return text
}

// FromFlags returns the connection that flags describe. The value of a flag may have the form of a field of a line. A
// port that is missing, or only a protocol, is completed by that of the destination.
func FromFlags(given Connection) (c Connection, err error) {
	var port string
	c.From, _ = ParseEnd(given.From)
	c.To, port = ParseEnd(given.To)
	c.Port = strings.TrimSpace(given.Port)
	of := fields(c.Port)
	protocol := of.first("protocol", "proto")
	switch named := strings.ToLower(c.Port); {
	case len(of) > 0:
		port, c.Port = of.first("dport", "dpt"), of["port"]
	case named == "tcp" || named == "udp" || named == "sctp" || named == "icmp" || named == "icmpv6":
		protocol = named
	}
	if c.Port != "" && protocol == "" || protocol == "" && port == "" {
		return c, nil
	}
	if protocol == "" {
		protocol = "tcp"
	}
	completed, err := portOf(protocol, port)
	if completed != "" {
		c.Port = completed
	}
	return c, errors.Wrap(err, "--port")
}
