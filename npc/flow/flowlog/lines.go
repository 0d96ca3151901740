package flowlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
)

// longestLine is how many bytes a line may have. Those of a store have much fewer: clean limits names and labels.
const longestLine = 1 << 20

// Skipped are the lines of a recording that are no records.
type Skipped struct {
	Lines int
	First error // what is wrong with the first of them, which it names; nil if there are none
}

// String returns a sentence about them.
func (s Skipped) String() string {
	return fmt.Sprintf("%s skipped, which are no records of connections, such as %v",
		spelling.Count(s.Lines, "line"), s.First)
}

func (s *Skipped) add(err error, number int) {
	if s.Lines++; s.First == nil {
		s.First = errors.Wrapf(err, "line %d", number)
	}
}

// Read reads records, one a line, and gives each to a function, whose error ends it. Empty lines are passed over, and so
// are those that are no records: they are counted. An error names the line.
func Read(in io.Reader, each func(Record) error) (skipped Skipped, err error) {
	lines := bufio.NewReader(in)
	var buffer []byte
	for number := 1; ; number++ {
		line, long, err := nextLine(lines, buffer[:0])
		buffer = line
		switch line = bytes.TrimSpace(line); {
		case errors.Is(err, io.EOF):
			return skipped, nil
		case err != nil:
			return skipped, errors.Wrapf(err, "line %d", number)
		case long:
			skipped.add(errors.Errorf("it has more than %d bytes", longestLine), number)
			continue
		case len(line) == 0:
			continue
		}
		r, err := parse(line)
		if err != nil {
			skipped.add(err, number)
			continue
		}
		if err := each(r); err != nil {
			return skipped, errors.Wrapf(err, "line %d", number)
		}
	}
}

// nextLine appends the next line to a buffer, without its end. One that is too long is read to its end, and not kept.
func nextLine(in *bufio.Reader, line []byte) (_ []byte, long bool, err error) {
	for some := false; ; some = true {
		part, more, err := in.ReadLine()
		if some && errors.Is(err, io.EOF) {
			return line, long, nil
		}
		if err != nil {
			return line, long, err
		}
		if long = long || len(line)+len(part) > longestLine; !long {
			line = append(line, part...)
		}
		if !more {
			return line, long, nil
		}
	}
}

// Write writes records, one a line, as Read reads them.
func Write(out io.Writer, records ...Record) error {
	buffered := bufio.NewWriter(out)
	lines := json.NewEncoder(buffered)
	for _, r := range records {
		if err := lines.Encode(r); err != nil {
			return errors.Wrap(err, "writing a record of connections")
		}
	}
	return errors.Wrap(buffered.Flush(), "writing records of connections")
}

// noRecord returns the error for a line that is none.
func noRecord(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax), errors.As(err, &kind) && kind.Field == "":
		return errors.New("it is no record of connections, as flows -o json prints one a line")
	case kind != nil:
		return errors.Errorf("it is no record of connections: %s cannot be %s", kind.Field, kind.Value)
	}
	return errors.Wrap(err, "it is no record of connections")
}

// parse reads a line. What is made of records must be able to rely on their names and labels being such as Kubernetes
// has.
func parse(line []byte) (r Record, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return r, noRecord(err)
	}
	if !r.Verdict.known() {
		return r, errors.Errorf("verdict: it is %q, neither %s nor %s", r.Verdict, Allowed, Denied)
	}
	if r.Port.Protocol == 0 {
		return r, errors.New("port: it is missing")
	}
	if err := r.From.check(); err != nil {
		return r, errors.Wrap(err, "from")
	}
	if err := r.To.check(); err != nil {
		return r, errors.Wrap(err, "to")
	}
	switch {
	case r.From.Addr.Is4() != r.To.Addr.Is4():
		return r, errors.Errorf("%s and %s are of different families", r.From.Addr, r.To.Addr)
	case !r.From.IsPod() && !r.To.IsPod():
		return r, errors.New("neither end is a pod")
	case r.Port.Protocol == npc.ICMP && r.To.Addr.Is6():
		r.Port.Protocol = npc.ICMPv6 // the text has one name for both
	}
	if r.By != nil && !r.By.printable() {
		return r, errors.New("by: it has characters that cannot be printed")
	}
	for _, s := range r.Staged {
		if s.By != nil && !s.By.printable() || !printable(s.Group, s.Policy, s.Content) {
			return r, errors.New("staged: it has characters that cannot be printed")
		}
		if !s.Verdict.known() {
			return r, errors.Errorf("staged: verdict: it is %q, neither %s nor %s", s.Verdict, Allowed, Denied)
		}
	}
	for _, name := range r.PortNames {
		if wrong := validation.IsValidPortName(name); len(wrong) > 0 {
			return r, errors.Errorf("port_names: %q: %s", name, wrong[0])
		}
	}
	return r, nil
}

// check returns what is wrong with an end, and unmaps its address.
func (e *End) check() error {
	if e.Addr = e.Addr.Unmap(); !e.Addr.IsValid() {
		return errors.New("address: it is missing")
	}
	if e.Addr.Zone() != "" {
		return errors.Errorf("address: %s has a zone", e.Addr)
	}
	if !e.IsPod() {
		*e = End{Addr: e.Addr, NodeAddr: e.NodeAddr, DomainNames: e.DomainNames}
		return e.checkNames()
	}
	e.DomainNames = nil
	if !printable(e.Workload, e.Pod) {
		return errors.New("workload or pod: it has characters that cannot be printed")
	}
	if wrong := validation.IsDNS1123Label(e.Namespace); len(wrong) > 0 {
		return errors.Errorf("namespace: %q: %s", e.Namespace, wrong[0])
	}
	for key, value := range e.Labels {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return errors.Errorf("labels: %q: %s", key, wrong[0])
		}
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			return errors.Errorf("labels: %s: %q: %s", key, value, wrong[0])
		}
	}
	return nil
}

// checkNames returns what is wrong with domain names. Labels of hosts may have underscores.
func (e *End) checkNames() error {
	if len(e.DomainNames) > maxDomainNames {
		return errors.Errorf("domain_names: they are %d, more than %d", len(e.DomainNames), maxDomainNames)
	}
	for _, name := range e.DomainNames {
		const characters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
		if name == "" || len(name) > validation.DNS1123SubdomainMaxLength || strings.Trim(name, characters) != "" {
			return errors.Errorf("domain_names: %q is none", name)
		}
	}
	return nil
}

func (r *RuleRef) printable() bool { return printable(r.Tier, r.Policy, r.Direction) }

// printable reports whether texts can be put on a terminal and into comments.
func printable(texts ...string) bool {
	return !strings.ContainsFunc(strings.Join(texts, ""), func(r rune) bool { return !strconv.IsPrint(r) })
}
