package expectation

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// parseSubject reads terms with "and" or "or" between them.
func parseSubject(words []string) (Subject, error) {
	var s Subject
	for from := 0; from <= len(words); {
		to := from
		for to < len(words) && words[to] != "and" && words[to] != "or" {
			to++
		}
		t, err := parseTerm(words[from:to])
		if err != nil {
			return nil, err
		}
		s, from = append(s, t), to+1
	}
	return s, nil
}

// parseTerm reads one term.
func parseTerm(words []string) (Term, error) {
	t := Term{Text: strings.Join(words, " ")}
	switch t.Text {
	case "":
		return t, errors.New("a name is missing, such as shop/web")
	case "anything", "anyone", "anybody", "everything", "everyone", "everybody":
		t.All = true
		return t, nil
	case "all pods", "any pod", "pods", "*/*":
		return t, nil
	case "the internet", "internet":
		t.Blocks = internet()
		return t, nil
	}
	if isCall(words[0], "pods") || isCall(words[0], "namespaces") || words[0] == "pods" {
		return t, t.parseSelectors(words)
	}
	if len(words) > 1 {
		if strings.HasSuffix(t.Text, " does not") || strings.HasSuffix(t.Text, " do not") {
			return t, errors.Errorf("%q is no name: write never reaches, or cannot reach", t.Text)
		}
		return t, errors.Errorf("%q is no name: it has a blank", t.Text)
	}
	return t, t.parseName()
}

// internet returns the addresses that are neither private, nor for a special purpose (IANA).
func internet() []ipblock.Block {
	block := func(cidr string, except ...string) (b ipblock.Block) {
		b.CIDR = netip.MustParsePrefix(cidr)
		for _, e := range except {
			b.Except = append(b.Except, netip.MustParsePrefix(e))
		}
		return b
	}
	return []ipblock.Block{
		block("0.0.0.0/0", "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
			"192.0.0.0/24",
			"192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
		block("2000::/3", "2001:db8::/32"),
	}
}

// parseName reads NAMESPACE, NAMESPACE/*, NAMESPACE/NAME, NAMESPACE/KIND/NAME, svc/NAME.NAMESPACE, an address, a range of
// addresses or a domain name, which has a dot.
func (t *Term) parseName() error {
	if a, err := netip.ParseAddr(t.Text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		t.Blocks = []ipblock.Block{{CIDR: netip.PrefixFrom(a, a.BitLen())}}
		return nil
	}
	if _, err := netip.ParsePrefix(t.Text); err == nil {
		return t.parseBlock(t.Text, nil)
	}
	namespace, name, slash := strings.Cut(t.Text, "/")
	if o, ok := flow.ParseObject(t.Text); ok && o.Namespace != "" {
		t.Kind, namespace, name = o.Kind, o.Namespace, o.Name
	}
	if !slash && strings.Contains(t.Text, ".") {
		return t.parseDomain(t.Text)
	}
	if errs := validation.IsDNS1123Label(namespace); len(errs) > 0 {
		return errors.Errorf("%q is no subject such as shop/web, shop/*, shop, pods(app=web) in shop, "+
			"10.0.0.0/8, api.example.com or everyone", t.Text)
	}
	t.Namespace = namespace
	if !slash || name == "*" {
		return nil
	}
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		if _, workload, is := strings.Cut(name, "/"); is {
			return errors.Errorf("%q is no kind of workloads, such as %s/deploy/%s", strings.TrimSuffix(name, "/"+workload),
				namespace, workload)
		}
		return errors.Errorf("%q is no name of a pod or of a workload; for all pods of the namespace write %s/*", name,
			namespace)
	}
	t.Name = name
	return nil
}

// parseDomain reads a domain name.
func (t *Term) parseDomain(text string) error {
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	last := name[strings.LastIndexByte(name, '.')+1:] // of digits alone, it is of a mistyped address
	if errs := validation.IsDNS1123Subdomain(strings.TrimPrefix(name, "*.")); len(errs) > 0 || strings.Trim(last, "0123456789") == "" {
		return errors.Errorf("%q is no domain name such as api.example.com or *.example.com", text)
	}
	t.Domain = name
	return nil
}

// parseBlock reads a range of addresses and the ranges that it is without.
func (t *Term) parseBlock(cidr string, except []string) error {
	read := func(text string) (netip.Prefix, error) {
		p, err := ipblock.ParseCIDR(text)
		if err != nil || p.Addr().Is4In6() {
			return p, errors.Errorf("%q is no range of addresses such as 10.0.0.0/8", text)
		}
		return p, nil
	}
	of, err := read(cidr)
	if err != nil {
		return err
	}
	b := ipblock.Block{CIDR: of}
	for _, text := range except {
		p, err := read(text)
		if err != nil {
			return err
		}
		if p.Bits() < of.Bits() || !of.Contains(p.Addr()) {
			return errors.Errorf("%s is not within %s", p, of)
		}
		b.Except = append(b.Except, p)
	}
	slices.SortFunc(b.Except, netip.Prefix.Compare)
	t.Blocks = []ipblock.Block{b}
	return nil
}

// isCall reports whether a word is a function's name with something in parentheses.
func isCall(word, function string) bool {
	return strings.HasPrefix(word, function+"(") && strings.HasSuffix(word, ")")
}

// parseSelectors reads namespaces(SELECTOR), or pods(SELECTOR) or pods, both alone or before in NAMESPACE or in
// namespaces(SELECTOR).
func (t *Term) parseSelectors(words []string) (err error) {
	if isCall(words[0], "pods") {
		if t.Pods, err = parseSelector(words[0], "pods"); err != nil {
			return err
		}
	}
	in := words[0]
	switch {
	case len(words) == 3 && words[1] == "in":
		in = words[2]
	case len(words) > 1:
		return errors.Errorf("after %s comes in NAMESPACE or in namespaces(SELECTOR), not %q", words[0],
			strings.Join(words[1:], " "))
	case !isCall(in, "namespaces"):
		return nil // pods of all namespaces
	}
	if isCall(in, "namespaces") {
		t.Namespaces, err = parseSelector(in, "namespaces")
		return err
	}
	if errs := validation.IsDNS1123Label(in); len(errs) > 0 {
		return errors.Errorf("%q is neither a namespace nor namespaces(SELECTOR)", in)
	}
	t.Namespace = in
	return nil
}

// parseSelector reads the selector in the parentheses after a function's name.
func parseSelector(word, function string) (policy.Selector, error) {
	text := strings.TrimSuffix(strings.TrimPrefix(word, function+"("), ")")
	s, err := labels.Parse(text)
	if err != nil {
		return policy.Selector{}, errors.Errorf("%s: %q is no selector such as app=web,tier!=test", function, text)
	}
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		if op := r.Operator(); op == selection.GreaterThan || op == selection.LessThan {
			return policy.Selector{}, errors.Errorf("%s: %s is no operator of selectors of policies", function, op)
		}
	}
	if len(requirements) == 0 {
		return policy.Selector{}, nil
	}
	return policy.Selector{Selector: s}, nil
}
