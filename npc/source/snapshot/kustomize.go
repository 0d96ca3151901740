package snapshot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// File is the text of a manifest that is not on disk.
type File struct {
	Path string // as problems name it
	Text []byte
}

// kustomization is a directory with a kustomization, as kustomize reads it. It refuses what would be fetched, and files
// that are too big.
type kustomization struct {
	filesys.FileSystem
	dir  string // as problems name it
	root string // as the file system names it
	// refused is why a file was not read. What kustomize makes of that names the wrong file.
	refused error
}

// isKustomization reports whether a path has the name of a file that makes its directory a kustomization.
func isKustomization(path string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(path))
}

// hasKustomization reports whether a directory on disk is a kustomization.
func hasKustomization(dir string) bool {
	return slices.ContainsFunc(konfig.RecognizedKustomizationFileNames(), func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	})
}

// kustomize returns what the kustomization in a directory of a file system, which problems name dir, makes of the
// objects of each file.
func kustomize(files filesys.FileSystem, root, dir string) ([]File, error) {
	k := &kustomization{FileSystem: files, dir: dir}
	confirmed, _, err := files.CleanedAbs(root)
	if err != nil {
		return nil, errors.Wrap(err, dir)
	}
	k.root = confirmed.String()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(k, k.root)
	switch {
	case k.refused != nil:
		return nil, k.refused
	case err != nil:
		return nil, k.plain(err)
	}
	var all []File
	for _, r := range resources.Resources() {
		path := k.originOf(r)
		text, err := r.AsYAML()
		if err != nil {
			return nil, errors.Wrap(err, path)
		}
		i := slices.IndexFunc(all, func(f File) bool { return f.Path == path })
		if i < 0 {
			i, all = len(all), append(all, File{Path: path})
		}
		all[i].Text = append(append(all[i].Text, "---\n"...), text...)
	}
	return all, nil
}

// outside matches what kustomize says of a file that is not below the kustomization that names it.
var outside = regexp.MustCompile(`from '([^']*)': security; file '[^']*' is not in or below '([^']*)'`)

// plain returns an error of kustomize in one line, with paths as problems name them.
func (k *kustomization) plain(err error) error {
	text := strings.ReplaceAll(err.Error(), k.root+string(filepath.Separator), "")
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, k.root, k.dir)), " ")
	if f := outside.FindStringSubmatch(text); f != nil {
		return errors.Errorf("%s: %s is a file outside of %s: copy it, or name a directory with a kustomization", k.dir,
			f[1], f[2])
	}
	return errors.Errorf("%s: %s", k.dir, strings.NewReplacer(": json: ", ": ", ": yaml: ", ": ").Replace(text))
}

// originOf returns the file that has a resource, and removes the annotation that says so.
func (k *kustomization) originOf(r *resource.Resource) string {
	path := k.dir
	if origin, err := r.GetOrigin(); err == nil && origin != nil {
		path = filepath.Join(k.dir, filepath.FromSlash(origin.Path))
		if origin.Path == "" {
			path = filepath.Join(k.dir, filepath.FromSlash(origin.ConfiguredIn))
		}
	}
	_ = r.SetOrigin(nil) // there is nothing to encode
	return path
}

// name returns the path of a file as problems name it.
func (k *kustomization) name(path string) string {
	if relative, err := filepath.Rel(k.root, path); err == nil {
		return filepath.Join(k.dir, relative)
	}
	return path
}

// refuse keeps the first reason, and returns it.
func (k *kustomization) refuse(path string, line int, text string) error {
	if k.refused == nil {
		k.refused = manifest.Problem{Path: k.name(path), Line: line, Text: text}
	}
	return k.refused
}

// ReadFile reads a file for kustomize. A file that names others is checked before.
func (k *kustomization) ReadFile(path string) ([]byte, error) {
	text, err := k.FileSystem.ReadFile(path)
	switch {
	case err != nil:
		return nil, err
	case len(text) > manifest.MaxSize:
		return nil, k.refuse(path, 0, fmt.Sprintf("has more than %d bytes; split it", manifest.MaxSize))
	case !isKustomization(path) && !plugin.Match(text):
		return text, nil
	}
	in := yaml.NewDecoder(bytes.NewReader(text))
	w := pathWalk{k: k, path: path, seen: map[*yaml.Node]bool{}}
	for {
		var root yaml.Node
		if err := in.Decode(&root); err != nil || len(root.Content) == 0 {
			return text, nil //nolint:nilerr // the end, or kustomize reports it
		}
		if err := w.walk(root.Content[0]); err != nil {
			return nil, err
		}
		if isKustomization(path) && filepath.Dir(path) == k.root {
			return withOrigins(root.Content[0], text), nil
		}
	}
}

// plugin matches a file that configures a part of kustomize, and may name further files.
var plugin = regexp.MustCompile(`(?m)apiVersion["']?\s*:\s*["']?builtin`)

// withOrigins returns a kustomization that annotates objects with their files.
func withOrigins(k *yaml.Node, text []byte) []byte {
	if k.Kind != yaml.MappingNode {
		return text
	}
	key, value := yaml.Node{}, yaml.Node{}
	key.SetString("buildMetadata")
	_ = value.Encode([]string{types.OriginAnnotations}) // a list of texts
	given := false
	for i := 0; i+1 < len(k.Content); i += 2 {
		if k.Content[i].Value == key.Value {
			given = true
			k.Content[i+1].Content = append(k.Content[i+1].Content, value.Content...)
		}
	}
	if !given {
		k.Content = append(k.Content, &key, &value)
	}
	if changed, err := yaml.Marshal(k); err == nil {
		return changed
	}
	return text
}

// pathWalk looks through a file for the paths that kustomize would read.
type pathWalk struct {
	k    *kustomization
	path string
	seen map[*yaml.Node]bool // nodes, of which several aliases may be
	line int                 // of a text in the file that the nodes are parsed from; 0 for the file itself
}

// local are the fields with paths of files or directories that have to exist, and others those with further paths.
var (
	local  = []string{"resources", "bases", "components"}
	others = []string{"crds", "configurations", "generators", "transformers", "validators", "files", "envs", "env",
		"path", "paths", "patchesStrategicMerge"}
)

func (w *pathWalk) walk(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if w.seen[n] {
		return nil
	}
	w.seen[n] = true
	for i, value := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			if err := w.field(n.Content[i-1], value); err != nil {
				return err
			}
		}
		if err := w.walk(value); err != nil {
			return err
		}
	}
	return nil
}

// field checks the paths that a field has.
func (w *pathWalk) field(key, value *yaml.Node) error {
	if strings.HasPrefix(key.Value, "helmChart") {
		return w.k.refuse(w.path, w.line+key.Line, key.Value+" is not rendered: remove it, and give what `helm template` prints")
	}
	isLocal := slices.Contains(local, key.Value)
	if !isLocal && !slices.Contains(others, key.Value) {
		return nil
	}
	items := value.Content
	if value.Kind == yaml.ScalarNode {
		items = []*yaml.Node{value}
	}
	for _, item := range items {
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if err := w.item(item, isLocal); err != nil {
			return err
		}
	}
	return nil
}

// item checks one path, or the text of an object in place of one.
func (w *pathWalk) item(item *yaml.Node, isLocal bool) error {
	if item.Kind != yaml.ScalarNode {
		return nil
	}
	line := w.line + item.Line
	var inline yaml.Node
	if strings.Contains(item.Value, "\n") {
		if yaml.Unmarshal([]byte(item.Value), &inline) != nil {
			return nil //nolint:nilerr // kustomize reports it
		}
		return (&pathWalk{k: w.k, path: w.path, seen: map[*yaml.Node]bool{}, line: line}).walk(&inline)
	}
	_, after, _ := strings.Cut(item.Value, "=") // of NAME=PATH, and of a query
	switch dir := filepath.Dir(w.path); {
	case remote.MatchString(item.Value), remote.MatchString(after):
		return w.k.refuse(w.path, line, item.Value+" is remote, and nothing is fetched: copy it, and name the copy")
	case isLocal && !w.k.Exists(filepath.Join(dir, filepath.FromSlash(item.Value))):
		return w.k.refuse(w.path, line, item.Value+" does not exist")
	}
	return nil
}

// remote matches what kustomize takes for a URL or a repository of git.
var remote = regexp.MustCompile(`(?i)^(git::|https?://|ssh://|file://|github\.com[/:]|[a-z][a-z0-9-]*@)`)

// withoutLines has problems name files alone: lines of what kustomize prints are in no file.
func withoutLines(parse func(path string, data []byte) manifest.File) func(path string, data []byte) manifest.File {
	return func(path string, data []byte) manifest.File {
		f := parse(path, data)
		for i := range f.Problems {
			f.Problems[i].Line = 0
		}
		for i := range f.Objects {
			f.Objects[i] = f.Objects[i].WithoutLines()
		}
		for kind, ignored := range f.Ignored {
			ignored.Line = 1
			f.Ignored[kind] = ignored
		}
		return f
	}
}
