package snapshot

import (
	"github.com/weave-npc/weave-npc/npc/source/internal/directory"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// Positions are the files and lines of the objects of manifests. A nil one has none. It is used by one goroutine.
type Positions struct {
	lines   map[string]*manifest.Lines // by path
	objects map[object]position
}

type object struct{ kind, namespace, name string }

type position struct {
	path string
	manifest.Object
}

func newPositions() *Positions {
	return &Positions{lines: map[string]*manifest.Lines{}, objects: map[object]position{}}
}

// parsing returns a function that does what parse does and keeps the texts of files.
func (p *Positions) parsing(
	parse func(path string, data []byte) manifest.File,
) func(path string, data []byte) manifest.File {
	return func(path string, data []byte) manifest.File {
		p.lines[path] = manifest.NewLines(append([]byte{}, data...))
		return parse(path, data)
	}
}

// add adds the objects of files. Of those with the same kind and name, the first counts.
func (p *Positions) add(files []directory.File) {
	for _, f := range files {
		for _, o := range f.Objects {
			key := object{o.Kind, o.Namespace, o.Name}
			if _, ok := p.objects[key]; !ok {
				p.objects[key] = position{f.Path, o}
			}
		}
	}
}

// Of returns the file of an object, and the line of one of its fields, such as "spec.ingress[0].from", or of the object
// itself if the field is empty. The path is empty if the object is in no manifest.
func (p *Positions) Of(kind, namespace, name, field string) (path string, line int) {
	if p == nil {
		return "", 0
	}
	at, ok := p.objects[object{kind, namespace, name}]
	if !ok {
		return "", 0
	}
	return at.path, p.lines[at.path].Of(at.Object, field)
}
