package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"
)

const (
	// maxObjects limits the objects of a file, and its documents with content.
	maxObjects = 50_000
	// maxProblems is the number of problems after which the rest of a file is not read.
	maxProblems = 1000
	// maxIgnoredKinds is the number of kinds that are not used which are counted separately.
	maxIgnoredKinds = 100
)

// parser reads the documents of one file, one at a time.
type parser struct {
	Options
	path string
	file File
}

// Options are what manifests are read for.
type Options struct {
	// Namespace is that of objects that name none; empty stands for the default one.
	Namespace string
	// Workloads has workloads used.
	Workloads bool
	// Former has the former kinds used, and no others.
	Former bool
	// Mixed manifests are among other files: what is no object, or a template of Helm, is ignored.
	Mixed bool
}

// Parse reads a file of manifests that are alone, without workloads. It changes data.
func Parse(path string, data []byte) File { return Options{}.Parse(path, data) }

// Parse reads a file of YAML or JSON documents. Each document is an object or a list. It changes data.
func (o Options) Parse(path string, data []byte) File {
	isTemplate := o.Mixed && bytes.Contains(data, []byte("{{"))
	f := (&parser{Options: o, path: path}).parseAll(data)
	if isTemplate && len(f.Problems) > 0 {
		return File{Ignored: map[string]Ignored{Template: {Line: 1, Count: 1}}}
	}
	return f
}

func (p *parser) parseAll(data []byte) File {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		p.refuse(1, "", "the file is in UTF-16, as some versions of PowerShell write; save it as UTF-8")
		return p.file
	}
	documents := 0
	for d := range splitDocuments(data) {
		if documents++; documents > maxObjects {
			p.refuse(d.line, "", fmt.Sprintf("the file has more than %d documents; split it", maxObjects))
			break
		}
		if p.parse(d); p.tooMuch(d.line) {
			break
		}
	}
	p.refuseDuplicates()
	return p.file
}

func (p *parser) refuseDuplicates() {
	first := map[string]int{} // object -> line
	for _, o := range p.file.Objects {
		if line, ok := first[o.String()]; ok {
			p.refuse(o.Line, o.String(), fmt.Sprintf("is already on line %d", line))
			continue
		}
		first[o.String()] = o.Line
	}
}

// tooMuch reports whether the file has more objects or problems than are kept, and refuses it if so.
func (p *parser) tooMuch(line int) bool {
	switch {
	case len(p.file.Objects) > maxObjects:
		p.refuse(line, "", fmt.Sprintf("the file has more than %d objects; split it", maxObjects))
		p.file.Objects = nil
	case len(p.file.Problems) > maxProblems:
		p.refuse(line, "", "too many problems, the rest is not read")
	default:
		return false
	}
	return true
}

func (p *parser) refuse(line int, what, text string) {
	if what != "" {
		text = what + ": " + text
	}
	p.file.Problems = append(p.file.Problems, Problem{Path: p.path, Line: line, Text: text})
}

// parse reads one document.
func (p *parser) parse(d document) {
	if isBlank(d.text) {
		return
	}
	if err := d.tooBig(); err != nil {
		p.refuse(d.firstLine(), "", err.Error())
		return
	}
	data := d.text
	if !d.isJSON() {
		var err error
		// No target type: a number where a string belongs stays an error, as it is for the API server.
		if data, err = yaml.YAMLToJSONStrict(d.text); err != nil {
			for _, e := range yamlErrors(err) {
				if braces.Match(d.text) {
					e.text += "; where {{ begins a template, give what `helm template` prints"
				}
				p.refuse(d.line+e.line-1, "", e.text)
			}
			return
		}
	}
	if string(data) == "null" {
		return
	}
	p.decode(node{data: data, position: newPosition(d)}, false)
}

// node is one object in a document: the document itself, or an item of a list.
type node struct {
	data     []byte
	path     string // in the document, as "items[3]"; empty for the document itself
	position *position
}

// place returns the place of the object in the file, for Lines.
func (n node) place() place { return place{n.position.doc.line, n.path} }

// line returns the line of a field of the object; of the object itself if path is empty.
func (n node) line(path string) int {
	if n.path != "" && path != "" {
		path = n.path + "." + path
	} else if path == "" {
		path = n.path
	}
	return n.position.line(path)
}

// decode reads an object or a list, if it is of a kind that is used.
func (p *parser) decode(n node, inList bool) {
	var t metav1.TypeMeta
	err := kjson.UnmarshalCaseSensitivePreserveInts(n.data, &t)
	if _, isUsed := servedVersion(t.Kind); p.Mixed && (err != nil || t.Kind == "" || t.APIVersion == "" && !isUsed) {
		p.ignore(n, noObject, "")
		return
	}
	if err != nil {
		_, text := typeError(err)
		p.refuse(n.line(""), "", "is no Kubernetes object: "+text)
		return
	}
	if t.APIVersion == "" || t.Kind == "" {
		p.refuse(n.line(""), "", "has no apiVersion or no kind")
		return
	}
	version, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil {
		p.refuse(n.line("apiVersion"), t.Kind, err.Error())
		return
	}
	kind := strings.TrimSuffix(t.Kind, "List")
	isTypedList := kind != t.Kind && isServed(kind, version)
	switch {
	case p.Former && t.Kind != "List":
		p.decodeOnlyFormer(n, t, version)
	case isWorkload(kind) && !p.Workloads:
		p.ignore(n, t.APIVersion+" "+t.Kind, "")
	case inList && (t.Kind == "List" || isTypedList):
		p.refuse(n.line(""), t.Kind, "is a list in a list")
	case t.APIVersion == "v1" && t.Kind == "List":
		p.decodeList(n, metav1.TypeMeta{})
	case isTypedList:
		p.decodeList(n, metav1.TypeMeta{APIVersion: t.APIVersion, Kind: kind})
	case isServed(t.Kind, version):
		p.decodeObject(n, t.Kind)
	case isOtherVersion(kind, version):
		served, _ := servedVersion(kind)
		p.refuse(n.line("apiVersion"), t.Kind,
			fmt.Sprintf("apiVersion %q is not served, use %q", t.APIVersion, served.String()))
	default:
		p.ignore(n, t.APIVersion+" "+t.Kind, doubt(version, kind))
	}
}

// ignore counts an object of a kind that is not used.
func (p *parser) ignore(n node, kind, doubt string) {
	if p.file.Ignored == nil {
		p.file.Ignored = map[string]Ignored{}
	}
	was, ok := p.file.Ignored[kind]
	if !ok && len(p.file.Ignored) >= maxIgnoredKinds {
		kind = "other kinds"
		was, ok = p.file.Ignored[kind]
	}
	if !ok {
		was = Ignored{Line: n.line(""), Doubt: doubt}
	}
	was.Count++
	p.file.Ignored[kind] = was
}

// decodeList reads the items of a list. Those of a typed list need not name their kind.
func (p *parser) decodeList(n node, typed metav1.TypeMeta) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	kind := "List"
	if typed.Kind != "" {
		kind = typed.Kind + "List"
	}
	if !p.unmarshal(n, kind, &list) {
		return
	}
	for i, data := range list.Items {
		if p.tooMuch(n.line("")) {
			return
		}
		item := node{data: data, path: fmt.Sprintf("items[%d]", i), position: n.position}
		if typed.Kind == "" {
			p.decode(item, true)
			continue
		}
		var t metav1.TypeMeta
		err := kjson.UnmarshalCaseSensitivePreserveInts(data, &t)
		if err == nil && (t.Kind != "" && t.Kind != typed.Kind ||
			t.APIVersion != "" && t.APIVersion != typed.APIVersion) {
			p.refuse(item.line(""), kind, fmt.Sprintf("has an item of %s %s", t.APIVersion, t.Kind))
			continue
		}
		p.decodeObject(item, typed.Kind)
	}
}

// decodeObject reads an object of a kind that is used.
func (p *parser) decodeObject(n node, kind string) {
	switch kind {
	case KindNamespace:
		decodeAs(p, n, kind, setNamespaceDefaults, validateNamespace)
	case KindPod:
		decodeAs(p, n, kind, setPodDefaults, validatePod)
	case KindNode:
		decodeAs(p, n, kind, setNodeDefaults, validateNode)
	case KindNetworkPolicy:
		decodeAs(p, n, kind, setPolicyDefaults, validatePolicy)
	case KindClusterNetworkPolicy:
		decodeAs(p, n, kind, setClusterPolicyDefaults, func(o *v1alpha2.ClusterNetworkPolicy) field.ErrorList {
			return validateClusterPolicy(o, newFields(n.data).has)
		})
	case KindAdminNetworkPolicy:
		decodeFormer(p, n, kind, ofAdmin)
	case KindBaselineAdminNetworkPolicy:
		decodeFormer(p, n, kind, ofBaseline)
	default:
		p.decodeWorkload(n, kind)
	}
}

// decodeOnlyFormer reads an object or a typed list of a former kind, and ignores others.
func (p *parser) decodeOnlyFormer(n node, t metav1.TypeMeta, version schema.GroupVersion) {
	known := schema.GroupVersion(v1alpha1.GroupVersion)
	switch kind := strings.TrimSuffix(t.Kind, "List"); {
	case !isFormer(kind, version):
		p.ignore(n, t.APIVersion+" "+t.Kind, "")
	case version != known:
		p.refuse(n.line("apiVersion"), t.Kind, fmt.Sprintf("apiVersion %q is not known, use %q", version, known))
	case kind != t.Kind:
		p.decodeList(n, metav1.TypeMeta{APIVersion: t.APIVersion, Kind: kind})
	default:
		p.decodeObject(n, kind)
	}
}

// decodeFormer reads an object of a former kind, which is a T, as the ClusterNetworkPolicy with the same meaning.
func decodeFormer[T any](p *parser, n node, kind string, of func(*T) formerPolicy) {
	policy := new(T)
	if !p.unmarshal(n, p.describe(n, kind), policy) {
		return
	}
	converted, errs := convertFormer(of(policy), newFields(n.data).has)
	p.keep(n, kind, converted, errs)
}

// decodeAs reads an object as a T, sets its defaults, and adds it to the file if it is valid.
func decodeAs[T any, P interface {
	*T
	runtime.Object
	metav1.Object
}](p *parser, n node, kind string, setDefaults func(P), validate func(P) field.ErrorList) {
	what := p.describe(n, kind)
	o := P(new(T))
	if !p.unmarshal(n, what, o) {
		return
	}
	if isNamespaced(kind) && o.GetNamespace() == "" {
		o.SetNamespace(p.namespace())
	}
	setDefaults(o)
	p.keep(n, kind, o, validate(o))
}

// manifestObject is an object of any kind.
type manifestObject interface {
	runtime.Object
	metav1.Object
}

// keep adds an object to the file unless it has errors.
func (p *parser) keep(n node, kind string, o manifestObject, errs field.ErrorList) {
	for _, err := range errs {
		p.refuse(n.line(err.Field), title(kind, o.GetNamespace(), o.GetName()), err.Error())
	}
	if len(errs) == 0 {
		p.file.Objects = append(p.file.Objects, Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(),
			Line: n.line(""), Value: o, place: n.place()})
	}
}

// namespace returns that of objects that name none.
func (p *parser) namespace() string { return cmp.Or(p.Namespace, metav1.NamespaceDefault) }

// describe names an object that may not decode.
func (p *parser) describe(n node, kind string) string {
	name, namespace, err := nameOf(n)
	if err != nil {
		return kind
	}
	if isNamespaced(kind) && namespace == "" {
		namespace = p.namespace()
	}
	return title(kind, namespace, name)
}

// nameOf reads only the name and the namespace of an object.
func nameOf(n node) (name, namespace string, err error) {
	var o struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	err = kjson.UnmarshalCaseSensitivePreserveInts(n.data, &o)
	return o.Metadata.Name, o.Metadata.Namespace, err
}

// unmarshal decodes strictly, as the API server does when it is asked to, and refuses what it cannot decode.
func (p *parser) unmarshal(n node, what string, into any) bool {
	strict, err := kjson.UnmarshalStrict(n.data, into)
	if err != nil {
		path, text := typeError(err)
		p.refuse(n.line(path), what, text)
		return false
	}
	if _, isPolicy := into.(*networkingv1.NetworkPolicy); isPolicy { // Kubernetes 1.24 to 1.27 gave them a status
		strict = slices.DeleteFunc(strict, func(err error) bool { return strictErrorPath(err) == "status" })
	}
	for _, err := range strict {
		p.refuse(n.line(strictErrorPath(err)), what, err.Error())
	}
	return len(strict) == 0
}
