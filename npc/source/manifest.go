package source

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	kindNamespace     = "Namespace"
	kindPod           = "Pod"
	kindNetworkPolicy = "NetworkPolicy"
)

// problem is why a manifest, or an object in it, is refused.
type problem struct {
	path string
	line int // counted from 1; 0 if it is no particular line
	text string
}

// Error has the form that compilers use: path:line: text.
func (p problem) Error() string {
	if p.line == 0 {
		return p.path + ": " + p.text
	}
	return fmt.Sprintf("%s:%d: %s", p.path, p.line, p.text)
}

// object is one object of a manifest, defaulted and valid.
type object struct {
	kind, namespace, name string
	line                  int
	given                 runtime.Object
}

func (o object) String() string { return title(o.kind, o.namespace, o.name) }

func title(kind, namespace, name string) string {
	switch {
	case name == "":
		return kind
	case namespace == "":
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

// manifest is what a file says.
type manifest struct {
	path     string
	objects  []object
	problems []problem
	ignored  map[string]int // kind that is not used -> objects of it
	nodes    []string       // names of Nodes
}

// parseManifest reads the documents of a file, one at a time: YAML or JSON, single objects and lists. It changes data.
func parseManifest(path string, data []byte) *manifest {
	m := &manifest{path: path}
	documents := 0
	for d := range splitDocuments(data) {
		if documents++; documents > maxObjects {
			m.refuse(d.line, "", fmt.Sprintf("the file has more than %d documents; split it", maxObjects))
			break
		}
		if m.parse(d); m.tooMuch(d.line) {
			break
		}
	}
	first := map[string]int{} // object -> line
	for _, o := range m.objects {
		if line, ok := first[o.String()]; ok {
			m.refuse(o.line, o.String(), fmt.Sprintf("is already on line %d", line))
			continue
		}
		first[o.String()] = o.line
	}
	return m
}

// tooMuch refuses a file that has more than can be kept, from a line on, and reports whether it does.
func (m *manifest) tooMuch(line int) bool {
	switch {
	case len(m.objects) > maxObjects:
		m.refuse(line, "", fmt.Sprintf("the file has more than %d objects; split it", maxObjects))
		m.objects = nil
	case len(m.problems) > maxProblems:
		m.refuse(line, "", "too many problems, the rest is not read")
	default:
		return false
	}
	return true
}

func (m *manifest) refuse(line int, what, text string) {
	if what != "" {
		text = what + ": " + text
	}
	m.problems = append(m.problems, problem{path: m.path, line: line, text: text})
}

// parse reads one document.
func (m *manifest) parse(d document) {
	if isBlank(d.text) {
		return
	}
	if err := d.tooBig(); err != nil {
		m.refuse(d.firstLine(), "", err.Error())
		return
	}
	// No target type: a number where a string belongs stays an error, as it is for the API server.
	data, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		m.refuseYAML(d, err)
		return
	}
	if string(data) == "null" {
		return
	}
	m.decode(node{data: data, position: newPosition(d)}, false)
}

// node is one object in a document: the document itself, or an item of a list.
type node struct {
	data     []byte
	path     string // in the document, as "items[3]"; empty for the document itself
	position *position
}

func (n node) line(path string) int {
	if n.path != "" && path != "" {
		path = n.path + "." + path
	} else if path == "" {
		path = n.path
	}
	return n.position.line(path)
}

// decode reads an object or a list, if it is of a kind that we know.
func (m *manifest) decode(n node, inList bool) {
	var t metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(n.data, &t); err != nil {
		m.refuse(n.line(""), "", "is no Kubernetes object: "+err.Error())
		return
	}
	if t.APIVersion == "" || t.Kind == "" {
		m.refuse(n.line(""), "", "has no apiVersion or no kind")
		return
	}
	version, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil {
		m.refuse(n.line("apiVersion"), t.Kind, err.Error())
		return
	}
	switch kind := strings.TrimSuffix(t.Kind, "List"); {
	case inList && (t.Kind == "List" || kind != t.Kind && served(kind) == version):
		m.refuse(n.line(""), t.Kind, "is a list in a list")
	case t.APIVersion == "v1" && t.Kind == "List":
		m.decodeList(n, metav1.TypeMeta{})
	case kind != t.Kind && served(kind) == version:
		m.decodeList(n, metav1.TypeMeta{APIVersion: t.APIVersion, Kind: kind})
	case served(t.Kind) == version:
		m.decodeObject(n, t.Kind)
	case misversioned(kind, version):
		m.refuse(n.line("apiVersion"), t.Kind, fmt.Sprintf("apiVersion %q is not served, use %q", t.APIVersion,
			served(kind).String()))
	default:
		m.ignore(n, t)
	}
}

// maxIgnoredKinds is how many kinds that are not used are told apart in a file.
const maxIgnoredKinds = 100

// ignore counts an object of a kind that is not used. Of a Node, its name is.
func (m *manifest) ignore(n node, t metav1.TypeMeta) {
	if t.APIVersion == "v1" && t.Kind == "Node" {
		var o struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(n.data, &o); err == nil && o.Metadata.Name != "" {
			m.nodes = append(m.nodes, o.Metadata.Name)
		}
		return
	}
	if m.ignored == nil {
		m.ignored = map[string]int{}
	}
	kind := t.APIVersion + " " + t.Kind
	if _, ok := m.ignored[kind]; !ok && len(m.ignored) >= maxIgnoredKinds {
		kind = "other kinds"
	}
	m.ignored[kind]++
}

// served returns the version in which the API server knows a kind that we know.
func served(kind string) schema.GroupVersion {
	switch kind {
	case kindNamespace, kindPod:
		return corev1.SchemeGroupVersion
	case kindNetworkPolicy:
		return networkingv1.SchemeGroupVersion
	}
	return schema.GroupVersion{Group: "unknown"}
}

// misversioned says that the kind is one of ours in a version that is not. Other groups have policies of the same name.
func misversioned(kind string, version schema.GroupVersion) bool {
	switch kind {
	case kindNamespace, kindPod:
		return version.Group == corev1.GroupName
	case kindNetworkPolicy:
		return version.Group == networkingv1.GroupName || version.Group == "extensions" || version.Group == corev1.GroupName
	}
	return false
}

// decodeList reads the items of a list. Those of a typed list need not name their kind.
func (m *manifest) decodeList(n node, typed metav1.TypeMeta) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	kind := "List"
	if typed.Kind != "" {
		kind = typed.Kind + "List"
	}
	if !m.unmarshal(n, kind, &list) {
		return
	}
	for i, data := range list.Items {
		if m.tooMuch(n.line("")) {
			return
		}
		item := node{data: data, path: fmt.Sprintf("items[%d]", i), position: n.position}
		if typed.Kind == "" {
			m.decode(item, true)
			continue
		}
		var t metav1.TypeMeta
		err := kjson.UnmarshalCaseSensitivePreserveInts(data, &t)
		if err == nil && (t.Kind != "" && t.Kind != typed.Kind || t.APIVersion != "" && t.APIVersion != typed.APIVersion) {
			m.refuse(item.line(""), kind, fmt.Sprintf("has an item of %s %s", t.APIVersion, t.Kind))
			continue
		}
		m.decodeObject(item, typed.Kind)
	}
}

// decodeObject reads an object of a kind that we know, fills in its defaults and validates it.
func (m *manifest) decodeObject(n node, kind string) {
	what := m.describe(n, kind)
	var given runtime.Object
	var errs field.ErrorList
	switch kind {
	case kindNamespace:
		o := &corev1.Namespace{}
		if !m.unmarshal(n, what, o) {
			return
		}
		defaultNamespace(o)
		given, errs = o, validateNamespace(o)
	case kindPod:
		o := &corev1.Pod{}
		if !m.unmarshal(n, what, o) {
			return
		}
		defaultPod(o)
		given, errs = o, validatePod(o)
	case kindNetworkPolicy:
		o := &networkingv1.NetworkPolicy{}
		if !m.unmarshal(n, what, o) {
			return
		}
		defaultPolicy(o)
		given, errs = o, validatePolicy(o)
	}
	for _, err := range errs {
		m.refuse(n.line(err.Field), what, err.Error())
	}
	if len(errs) == 0 {
		id := given.(metav1.Object)
		m.objects = append(m.objects, object{kind: kind, namespace: id.GetNamespace(), name: id.GetName(),
			line: n.line(""), given: given})
	}
}

// describe names an object that may not decode.
func (m *manifest) describe(n node, kind string) string {
	var o struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(n.data, &o); err != nil {
		return kind
	}
	if kind != kindNamespace && o.Metadata.Namespace == "" {
		o.Metadata.Namespace = metav1.NamespaceDefault
	}
	return title(kind, o.Metadata.Namespace, o.Metadata.Name)
}

// unmarshal decodes strictly, as the API server does when it is asked to.
func (m *manifest) unmarshal(n node, what string, into any) bool {
	strict, err := kjson.UnmarshalStrict(n.data, into)
	if err != nil {
		m.refuse(n.line(typeErrorPath(err)), what, strings.TrimPrefix(err.Error(), "json: "))
		return false
	}
	for _, err := range strict {
		m.refuse(n.line(strictErrorPath(err)), what, err.Error())
	}
	return len(strict) == 0
}

// typeErrorPath returns the field that a decoding error names.
func typeErrorPath(err error) string {
	found := regexp.MustCompile(`Go struct field \w+\.(\S+) of type`).FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	return found[1]
}

// strictErrorPath returns the field that a strict decoding error names: `unknown field "spec.x"`.
func strictErrorPath(err error) string {
	_, rest, _ := strings.Cut(err.Error(), `"`)
	path, _, _ := strings.Cut(rest, `"`)
	return path
}

// refuseYAML reports what the YAML parser says, which counts lines from the start of the document.
func (m *manifest) refuseYAML(d document, err error) {
	found := regexp.MustCompile(`line (\d+): ([^\n]*)`).FindAllStringSubmatch(err.Error(), -1)
	if len(found) == 0 {
		m.refuse(d.line, "", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	for _, f := range found {
		line, err := strconv.Atoi(f[1])
		if err != nil {
			line = 1
		}
		m.refuse(d.line+line-1, "", f[2])
	}
}
