// Package manifest reads one manifest file: the YAML or JSON text of Kubernetes objects.
//
// Like an API server it fills in defaults, validates, and decodes strictly; unlike one it names the file and the line
// of everything that it refuses.
//
//	f := manifest.Parse("shop.yaml", data)
//	for _, p := range f.Problems {
//		log.Error(p.Error()) // shop.yaml:7: Pod shop/web: status.phase: Unsupported value: "running": ...
//	}
//
//	document ─▶ parse ─▶ fields: strict ─▶ defaults ─▶ validate, validate_policy, ... ─▶ File: Objects, Problems
//	                     kind: what is used                position, lines: where a field is
//
// The package knows neither directories nor other files, and it does not know how objects become facts.
package manifest

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
)

// File is the content of one manifest file. If there are problems, the objects are not complete.
type File struct {
	Objects  []Object
	Problems []Problem
	// Ignored are the objects of kinds that are not used, by "apiVersion kind", and by noObject and Template.
	Ignored map[string]Ignored
}

// What is no object, among other files.
const (
	noObject = "no object of Kubernetes"
	Template = "template of Helm"
)

// Ignored are the objects of a kind that is not used.
type Ignored struct {
	// Line is that of the first one.
	Line, Count int
	// Doubt is why they may be intended for policies that are enforced; empty for no doubt.
	Doubt string
}

// Object is one object of a manifest, with its defaults, and valid.
type Object struct {
	Kind, Namespace, Name string
	// Line is the line in the file on which the object begins.
	Line int
	// place is the object in its document.
	place place
	// Value is a *Namespace, *Pod, *Node, *NetworkPolicy, *ClusterNetworkPolicy or *Workload. It must not be changed.
	// Of a former kind, it is the *ClusterNetworkPolicy with the same meaning.
	Value runtime.Object
}

// WithoutLines returns the object as if it and its fields were on the first line.
func (o Object) WithoutLines() Object {
	o.Line, o.place = 1, place{}
	return o
}

// String returns the object's kind and name, as "Pod shop/web".
func (o Object) String() string { return title(o.Kind, o.Namespace, o.Name) }

func title(kind, namespace, name string) string {
	switch {
	case name == "":
		return kind
	case namespace == "":
		return kind + " " + name
	}
	return kind + " " + npc.ObjectKey(namespace, name)
}

// Problem is a reason to refuse a file, or an object in it.
type Problem struct {
	Path string
	Line int // counted from 1; 0 if the problem has no particular line
	Text string
}

// Error returns the problem in the form that compilers use: path:line: text. Whatever a name has in it, it is one line.
func (p Problem) Error() string {
	if p.Line == 0 {
		return spelling.Escape(p.Path + ": " + p.Text)
	}
	return spelling.Escape(fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.Text))
}

// IsName reports whether a path has the extension of a manifest.
func IsName(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// SortProblems puts problems in the order of their paths and lines.
func SortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
}
