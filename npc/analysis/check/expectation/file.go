package expectation

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// MaxExpectations limits the expectations of a file.
const maxExpectations = 10_000

// parser reads one file.
type parser struct {
	path     string
	problems []Problem
}

// Parse reads the documents of a file that are of Kind; it passes over others. Each of them is a File: what one says of
// pods is not for another.
func Parse(path string, data []byte) ([]File, []Problem) {
	p := &parser{path: path}
	var files []File
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.refuseYAML(err)
			break
		}
		if f, ok := p.document(&document); ok {
			files = append(files, f)
		}
	}
	return files, p.problems
}

// refuseYAML refuses what is no YAML.
func (p *parser) refuseYAML(err error) {
	line, text := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if found := regexp.MustCompile(`line (\d+): ([^\n]*)`).FindStringSubmatch(text); found != nil {
		text = found[2]
		if n, err := strconv.Atoi(found[1]); err == nil {
			line = n
		}
	}
	p.problems = append(p.problems, Problem{p.path, line, text})
}

func (p *parser) refuse(n *yaml.Node, text string) {
	p.problems = append(p.problems, Problem{p.path, n.Line, text})
}

// document reads a document, if it is one of expectations.
func (p *parser) document(document *yaml.Node) (f File, ok bool) {
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return f, false
	}
	root := document.Content[0]
	if kind := lookup(root, "kind"); kind == nil || kind.Value != Kind {
		return f, false
	}
	version := lookup(root, "apiVersion")
	switch {
	case version == nil:
		p.refuse(root, "apiVersion is missing: it is "+APIVersion)
		return f, false
	case version.Value != APIVersion && strings.HasPrefix(version.Value, "weave-npc/"):
		p.refuse(version, strconv.Quote(version.Value)+" is no version of "+Kind+": it is "+APIVersion)
		return f, false
	case version.Value != APIVersion:
		return f, false // another's kind of the same name
	}
	f.Path = p.path
	p.fields(root, map[string]func(*yaml.Node){
		"apiVersion": func(*yaml.Node) {}, "kind": func(*yaml.Node) {}, "metadata": func(*yaml.Node) {},
		"podCIDRs":      func(n *yaml.Node) { f.PodCIDRs = p.cidrs(n) },
		"newNamespaces": func(n *yaml.Node) { f.NewNamespaces = p.boolean(n) },
		"expectations":  func(n *yaml.Node) { f.Expectations = p.expectations(n) },
	})
	if lookup(root, "expectations") == nil {
		p.refuse(root, "expectations are missing")
	}
	return f, true
}

func lookup(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return resolved(n.Content[i+1])
		}
	}
	return nil
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// fields calls the function of each field of a mapping, and refuses fields that have none and those that are there
// twice.
func (p *parser) fields(n *yaml.Node, known map[string]func(*yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		read, ok := known[key.Value]
		switch {
		case !ok:
			p.refuse(key, "unknown field "+strconv.Quote(key.Value))
		case seen[key.Value]:
			p.refuse(key, "field "+strconv.Quote(key.Value)+" is already there")
		default:
			read(resolved(n.Content[i+1]))
		}
		seen[key.Value] = true
	}
}

func (p *parser) boolean(n *yaml.Node) (v bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&v) != nil {
		p.refuse(n, "must be true or false")
	}
	return v
}

// text returns a scalar as it is written, numbers too.
func (p *parser) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		p.refuse(n, "must be a text")
		return ""
	}
	return n.Value
}

// texts returns a list of texts, or one text.
func (p *parser) texts(n *yaml.Node) (out []string) {
	if n.Kind != yaml.SequenceNode {
		return []string{p.text(n)}
	}
	for _, item := range n.Content {
		out = append(out, p.text(resolved(item)))
	}
	return out
}

func (p *parser) cidrs(n *yaml.Node) (out []netip.Prefix) {
	for _, text := range p.texts(n) {
		cidr, err := ipblock.ParseCIDR(text)
		if err != nil || cidr.Addr().Is4In6() {
			p.refuse(n, strconv.Quote(text)+" is no range of addresses such as 10.32.0.0/12")
			continue
		}
		out = append(out, cidr)
	}
	return out
}

func (p *parser) expectations(n *yaml.Node) (out []Expectation) {
	if n.Kind != yaml.SequenceNode {
		p.refuse(n, "expectations must be a list")
		return nil
	}
	if len(n.Content) > maxExpectations {
		p.refuse(n, "there are more than "+strconv.Itoa(maxExpectations)+" expectations; split the file")
		return nil
	}
	for _, item := range n.Content {
		item = resolved(item)
		before := len(p.problems)
		var e Expectation
		if item.Kind == yaml.MappingNode {
			e = p.structured(item)
		} else {
			e = p.sentence(item)
		}
		e.Path, e.Line = p.path, item.Line
		if len(p.problems) == before {
			out = append(out, e)
		}
	}
	return out
}

// sentence reads an expectation that is one text.
func (p *parser) sentence(n *yaml.Node) Expectation {
	text := strings.Join(strings.Fields(p.text(n)), " ")
	if n.Kind != yaml.ScalarNode {
		return Expectation{}
	}
	e, err := parseSentence(text)
	if err != nil {
		p.refuse(n, strconv.Quote(text)+": "+err.Error())
	}
	e.Name = text
	return e
}

// structured reads an expectation with fields: expect, or from and one of those with a verb.
func (p *parser) structured(n *yaml.Node) (e Expectation) {
	var name string
	var empty bool
	sources, verbs := 0, 0
	destination := func(v Verb) func(*yaml.Node) {
		return func(n *yaml.Node) { e.Verb, e.To, verbs = v, p.subject(n), verbs+1 }
	}
	source := func(outside bool) func(*yaml.Node) {
		return func(n *yaml.Node) { e.From, e.Outside, sources = p.subject(n), outside, sources+1 }
	}
	var text *yaml.Node
	p.fields(n, map[string]func(*yaml.Node){
		"name": func(n *yaml.Node) { name = p.text(n) }, "allowEmpty": func(n *yaml.Node) { empty = p.boolean(n) },
		"expect": func(n *yaml.Node) { text = n },
		"from":   source(false), "noneOutside": source(true),
		"reaches": destination(Reaches), "neverReaches": destination(Never), "alwaysReaches": destination(Always),
		"on": func(n *yaml.Node) { p.ports(n, &e) },
	})
	switch {
	case text != nil && sources+verbs+len(e.Ports) > 0:
		p.refuse(text, "only name and allowEmpty may be set alongside expect")
	case text != nil:
		e = p.sentence(text)
	case sources != 1:
		p.refuse(n, "must have either from or noneOutside")
	case verbs != 1:
		p.refuse(n, "must have one of reaches, neverReaches and alwaysReaches")
	case e.Outside && e.Verb != Reaches:
		p.refuse(n, "noneOutside goes with reaches alone")
	default:
		if e.Outside {
			e.Verb = Never
		}
		e.Name = e.sentence()
		if err := checkVerb(e); err != nil {
			p.refuse(n, err.Error())
		}
	}
	if name != "" {
		e.Name = name
	}
	e.AllowEmpty = empty
	return e
}

func (p *parser) ports(n *yaml.Node, e *Expectation) {
	for _, text := range p.texts(n) {
		ports, err := parsePorts(text)
		if err != nil {
			p.refuse(n, err.Error())
		}
		e.Ports = append(e.Ports, ports...)
	}
	if len(e.Ports) == 0 {
		p.refuse(n, "on is empty; leave it out to select all ports")
	}
}

// sentence returns the expectation as a text.
func (e Expectation) sentence() string {
	text := e.From.String() + " reaches "
	switch {
	case e.Outside:
		text = "none outside " + text
	case e.Verb == Never:
		text = e.From.String() + " never reaches "
	case e.Verb == Always:
		text = e.From.String() + " always reaches "
	}
	text += e.To.String()
	for i, port := range e.Ports {
		text += []string{" on ", ", "}[min(i, 1)] + port.String()
	}
	return text
}

// subject reads a text, a term with fields, or a list of these.
func (p *parser) subject(n *yaml.Node) (s Subject) {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if item = resolved(item); item.Kind == yaml.SequenceNode {
				p.refuse(item, "is a list in a list")
				return nil
			}
			s = append(s, p.subject(item)...)
		}
		if len(s) == 0 {
			p.refuse(n, "the list is empty; for all pods and addresses write everyone")
		}
		return s
	case yaml.MappingNode:
		return Subject{p.term(n)}
	}
	words, err := splitWords(p.text(n))
	if err == nil {
		s, err = parseSubject(words)
	}
	if err != nil {
		p.refuse(n, err.Error())
	}
	return s
}

// term reads namespace, namespaceSelector and podSelector, or cidr and except, or domainName.
func (p *parser) term(n *yaml.Node) (t Term) {
	var cidr, domain string
	var except []string
	selectors := 0
	selector := func(name string, into *policy.Selector) func(*yaml.Node) {
		return func(n *yaml.Node) {
			selectors++
			*into = p.selector(n, name)
		}
	}
	p.fields(n, map[string]func(*yaml.Node){
		"cidr": func(n *yaml.Node) { cidr = p.text(n) }, "except": func(n *yaml.Node) { except = p.texts(n) },
		"domainName":        func(n *yaml.Node) { domain = p.text(n) },
		"namespace":         func(n *yaml.Node) { t.Namespace = p.text(n); selectors++ },
		"namespaceSelector": selector("namespaceSelector", &t.Namespaces),
		"podSelector":       selector("podSelector", &t.Pods),
	})
	switch {
	case domain != "" && cidr == "" && selectors == 0 && except == nil:
		t.Text = domain
		if err := t.parseDomain(domain); err != nil {
			p.refuse(n, err.Error())
		}
	case domain != "", (cidr != "") == (selectors > 0), cidr == "" && except != nil:
		p.refuse(n, "must have either cidr or domainName, or some of namespace, namespaceSelector and podSelector")
	case cidr != "":
		if err := t.parseBlock(cidr, except); err != nil {
			p.refuse(n, err.Error())
		}
		t.Text = cidr
		if len(except) > 0 {
			t.Text += " except " + strings.Join(except, " ")
		}
	case t.Namespace != "" && lookup(n, "namespaceSelector") != nil:
		p.refuse(n, "namespace and namespaceSelector exclude each other")
	default:
		t.Text = "pods(" + t.Pods.String() + ")"
		if t.Namespace != "" {
			t.Text += " in " + t.Namespace
		} else if t.Namespaces.Selector != nil {
			t.Text += " in namespaces(" + t.Namespaces.String() + ")"
		}
	}
	return t
}

// selector reads a selector as policies have it.
func (p *parser) selector(n *yaml.Node, field string) policy.Selector {
	var value any
	var selector metav1.LabelSelector
	err := n.Decode(&value)
	if err == nil {
		var data []byte
		if data, err = json.Marshal(value); err == nil {
			var strict []error
			if strict, err = kjson.UnmarshalStrict(data, &selector); err == nil && len(strict) > 0 {
				err = strict[0]
			}
		}
	}
	if err != nil {
		p.refuse(n, field+": "+strings.ReplaceAll(err.Error(), "\n", " "))
		return policy.Selector{}
	}
	s, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		p.refuse(n, field+": "+err.Error())
		return policy.Selector{}
	}
	if s.Empty() {
		return policy.Selector{}
	}
	return policy.Selector{Selector: s}
}
