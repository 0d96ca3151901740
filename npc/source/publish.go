package source

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// publish puts the objects of all files on the shelves. Where two files have the same one, the first path's counts.
func (d *directory) publish() []problem {
	type origin struct {
		path string
		line int
	}
	var problems []problem
	nodes, ignored := map[string]bool{}, map[string]int{} // kind -> objects
	origins := map[string]origin{}                        // object -> where it is
	objects := map[string]map[string]runtime.Object{kindNamespace: {}, kindPod: {}, kindNetworkPolicy: {}}
	created := map[string]metav1.Time{} // kind and key -> modification time of its file
	implied := map[string]metav1.Time{} // namespace -> modification time of the file that names it
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		file := d.files[path]
		for _, name := range file.nodes {
			nodes[name] = true
		}
		for kind, n := range file.ignored {
			ignored[kind] += n
		}
		for _, o := range file.inForce {
			if first, ok := origins[o.String()]; ok {
				problems = append(problems, problem{path: path, line: o.line, text: fmt.Sprintf(
					"%s: is already in %s:%d, which counts", o, first.path, first.line)})
				continue
			}
			origins[o.String()] = origin{path, o.line}
			objects[o.kind][o.namespace+"/"+o.name] = o.given
			created[o.kind+" "+o.namespace+"/"+o.name] = file.modified
			if _, ok := implied[o.namespace]; o.namespace != "" && !ok {
				implied[o.namespace] = file.modified
			}
		}
	}
	for name, modified := range implied {
		if _, ok := objects[kindNamespace]["/"+name]; !ok {
			objects[kindNamespace]["/"+name] = impliedNamespace(name)
			created[kindNamespace+" /"+name] = modified
		}
	}

	d.nodes = nodes
	d.noteIgnored(ignored)
	var total change
	for _, kind := range []string{kindNamespace, kindPod, kindNetworkPolicy} {
		c := d.shelves[kind].replace(objects[kind], func(key string) metav1.Time { return created[kind+" "+key] })
		total = change{total.added + c.added, total.changed + c.changed, total.removed + c.removed}
	}
	if total != (change{}) || !d.counted {
		d.counted = true
		d.log.Info("manifests read", "files", len(d.files), "added", total.added, "changed", total.changed,
			"removed", total.removed)
	}
	return problems
}

// maxKindsNamed is how many kinds that are not used the log names.
const maxKindsNamed = 20

// ignoredKinds are the kinds of objects that are not used and that the log has named.
type ignoredKinds map[string]bool

// noteIgnored counts the objects of kinds that are not used, and logs each kind once.
func (d *directory) noteIgnored(objects map[string]int) {
	total := 0
	if d.kinds == nil {
		d.kinds = ignoredKinds{}
	}
	for _, kind := range slices.Sorted(maps.Keys(objects)) {
		total += objects[kind]
		if d.kinds[kind] || len(d.kinds) >= maxKindsNamed {
			continue
		}
		d.kinds[kind] = true
		level, text := slog.LevelInfo, "objects of a kind that is not used are ignored"
		if strings.Contains(kind, "NetworkPolicy") {
			level, text = slog.LevelWarn, "policies of a kind that is not enforced are ignored"
		}
		d.log.Log(context.Background(), level, text, "kind", kind, "objects", objects[kind])
	}
	d.ignored.Store(int64(total))
}
