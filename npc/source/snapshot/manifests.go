package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/source/internal/directory"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// StandardInput is the path that stands for standard input, and its name in problems.
const StandardInput = "-"

// Manifests are those below a directory, in a file or in standard input.
type Manifests struct {
	// Namespace is that of objects that name none; empty stands for the default one.
	Namespace string

	path string
	text []byte // of a file or of standard input; nil for a directory
	// files are the contents of a directory that is not on disk; nil for one that is.
	files []File
	// kustomized directories are built, and rendered is what that makes of them; nil before they are.
	kustomized bool
	asked      bool // whether the user asked for that
	rendered   []File
}

// OpenKustomization opens what the kustomization in a directory makes.
func OpenKustomization(dir string) (*Manifests, error) {
	if !hasKustomization(dir) {
		return nil, errors.Errorf("%s has none of %s", spelling.Escape(dir),
			spelling.List(konfig.RecognizedKustomizationFileNames()))
	}
	return &Manifests{path: dir, kustomized: true, asked: true}, nil
}

// Open opens the manifests of a path. Of a directory with a kustomization they are what that makes. Standard input is read at once, as that is possible only once; nil stands for one
// that is used otherwise.
func Open(path string, stdin io.Reader) (*Manifests, error) {
	m := &Manifests{path: path, kustomized: path != StandardInput && hasKustomization(path)}
	if path == StandardInput {
		if stdin == nil {
			return nil, errors.New("standard input is read for another flag already")
		}
		text, err := io.ReadAll(io.LimitReader(stdin, manifest.MaxSize+1))
		if err != nil {
			return nil, errors.Wrap(err, "reading standard input")
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, errors.New("standard input is empty")
		}
		m.text = text
	} else if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		if m.text, err = readFile(path); err != nil {
			return nil, errors.Wrap(err, "reading manifests")
		}
	} else if err == nil && !info.IsDir() {
		return nil, errors.Errorf("%s is neither a file nor a directory", spelling.Escape(path))
	}
	if len(m.text) > manifest.MaxSize {
		return nil, errors.Errorf("%s: has more than %d bytes; split it", spelling.Escape(path), manifest.MaxSize)
	}
	return m, nil
}

// readFile reads a file, or one byte more of it than a manifest may have. The text is never nil.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, manifest.MaxSize+1))
}

// Files returns the texts of a path that Open takes which contain a word, and sentences about what is not read.
func Files(path string, stdin io.Reader, word string) (files []File, skipped []string, err error) {
	m, err := Open(path, stdin)
	if err != nil {
		return nil, nil, err
	}
	m.kustomized = false // which leaves out what is no object of Kubernetes
	result, err := m.parse(func(path string, text []byte) manifest.File {
		if bytes.Contains(text, []byte(word)) {
			files = append(files, File{path, text})
		}
		return manifest.File{}
	})
	if err == nil {
		err = joined(result.Problems)
	}
	return files, result.Skipped, err
}

// Objects returns the objects, without workloads, as weave-npc enforces them: it builds no kustomization unless that
// was asked for. The error joins the problems of all
// files; the objects are those of the files that have none.
func (m *Manifests) Objects() (Objects, error) {
	plain := *m
	plain.kustomized = m.asked
	objects, _, err := plain.read(plain.options().Parse)
	return objects, err
}

// options returns how the manifests are read. Files of a directory may have been made for something else.
func (m *Manifests) options() manifest.Options {
	return manifest.Options{Namespace: m.Namespace, Mixed: m.text == nil && !m.kustomized}
}

// WithWorkloads returns the objects, and a pod for each workload that has none.
func (m *Manifests) WithWorkloads() (Objects, error) {
	d, err := m.Declared()
	if err != nil {
		return d.Objects, err
	}
	return d.Made(), nil
}

// read reads and merges the manifests.
func (m *Manifests) read(parse func(path string, data []byte) manifest.File) (Objects, []*manifest.Workload, error) {
	positions := newPositions()
	result, err := m.parse(positions.parsing(parse))
	if err != nil {
		return Objects{}, nil, err
	}
	positions.add(result.Files)
	s := directory.New()
	merged := s.Replace(result.Files)
	problems := slices.Concat(result.Problems, merged.Problems)
	manifest.SortProblems(problems)
	var templates []*manifest.Workload
	for _, kind := range manifest.WorkloadKinds() {
		templates = append(templates, as[*manifest.Workload](s.Objects(kind))...)
	}
	unused, notes := unusedOf(result.Files)
	return Objects{
		Namespaces: as[*corev1.Namespace](s.Objects(manifest.KindNamespace)),
		Pods:       as[*corev1.Pod](s.Objects(manifest.KindPod)),
		Policies:   as[*networkingv1.NetworkPolicy](s.Objects(manifest.KindNetworkPolicy)),

		ClusterPolicies: as[*v1alpha2.ClusterNetworkPolicy](s.Objects(manifest.KindClusterNetworkPolicy)),
		Nodes:           as[*corev1.Node](s.Objects(manifest.KindNode)),

		Positions: positions,
		Unused:    unused,
		Notes:     append(notes, result.Skipped...),
	}, templates, joined(problems)
}

// Former returns the AdminNetworkPolicies and BaselineAdminNetworkPolicies of manifests as ClusterNetworkPolicies with
// the same meaning, in the order of their files and lines, and sentences about what is not read. It is an error if
// there are none, or if one of them cannot be converted.
func (m *Manifests) Former() (policies []*v1alpha2.ClusterNetworkPolicy, notes []string, err error) {
	o := m.options()
	o.Former = true
	result, err := m.parse(o.Parse)
	if err != nil {
		return nil, nil, err
	}
	problems := result.Problems
	first := map[string]position{} // by name: the kinds have separate names, what is made of them has not
	for _, f := range result.Files {
		maps.DeleteFunc(f.Ignored, func(kind string, _ manifest.Ignored) bool { return kind != manifest.Template })
		for _, o := range f.Objects {
			if was, ok := first[o.Name]; ok {
				problems = append(problems, manifest.Problem{Path: f.Path, Line: o.Line, Text: fmt.Sprintf(
					"%s: %s (%s:%d) makes a ClusterNetworkPolicy of the same name; rename one of them",
					o, was, was.path, was.Line)})
				continue
			}
			first[o.Name] = position{f.Path, o}
			policies = append(policies, o.Value.(*v1alpha2.ClusterNetworkPolicy))
		}
	}
	manifest.SortProblems(problems)
	if err := joined(problems); err != nil {
		return nil, nil, err
	}
	if len(policies) == 0 {
		return nil, nil, errors.Errorf("%s has no %s and no %s", spelling.Escape(m.path),
			manifest.KindAdminNetworkPolicy, manifest.KindBaselineAdminNetworkPolicy)
	}
	_, notes = unusedOf(result.Files)
	return policies, append(notes, result.Skipped...), nil
}

func (m *Manifests) parse(parse func(path string, data []byte) manifest.File) (directory.Result, error) {
	if m.kustomized {
		files, err := m.build()
		return parseFiles(files, withoutLines(parse)), err
	}
	if m.files != nil {
		return parseFiles(m.files, parse), nil
	}
	if m.text == nil {
		d, err := directory.Open(m.path, slog.New(slog.DiscardHandler))
		if err != nil {
			return directory.Result{}, err
		}
		return d.Read(parse)
	}
	return parseFiles([]File{{m.path, m.text}}, parse), nil
}

func parseFiles(files []File, parse func(path string, data []byte) manifest.File) (result directory.Result) {
	for _, f := range files {
		parsed := parse(f.Path, bytes.Clone(f.Text)) // which it changes
		if len(parsed.Problems) > 0 {
			result.Problems = append(result.Problems, parsed.Problems...)
			continue
		}
		result.Files = append(result.Files, directory.File{
			Path: f.Path, Objects: parsed.Objects, Ignored: parsed.Ignored})
	}
	return result
}

// build returns what the kustomization makes.
func (m *Manifests) build() (files []File, err error) {
	if m.rendered == nil {
		tree, root := filesys.MakeFsOnDisk(), m.path
		if m.files != nil {
			tree, root = filesys.MakeFsInMemory(), "/"
			for _, f := range m.files {
				if err := tree.WriteFile(path.Join(root, strings.TrimPrefix(f.Path, m.path)), f.Text); err != nil {
					return nil, err
				}
			}
		}
		if m.rendered, err = kustomize(tree, root, m.path); err != nil {
			return nil, err
		}
	}
	return m.rendered, nil
}

func as[T runtime.Object](objects []runtime.Object) []T {
	var out []T
	for _, o := range objects {
		out = append(out, o.(T))
	}
	return out
}

// joined returns the problems as one error with a line for each, or nil.
func joined(problems []manifest.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return errors.New(strings.Join(lines, "\n"))
}

// blocks yields the ranges of addresses that policies have for peers, and those that they except.
func (o Objects) blocks() iter.Seq[string] {
	return func(yield func(string) bool) {
		yieldAll := func(peers []networkingv1.NetworkPolicyPeer) bool {
			return !slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
				stop := func(cidr string) bool { return !yield(cidr) }
				return p.IPBlock != nil && (stop(p.IPBlock.CIDR) || slices.ContainsFunc(p.IPBlock.Except, stop))
			})
		}
		for _, p := range o.Policies {
			for _, r := range p.Spec.Ingress {
				if !yieldAll(r.From) {
					return
				}
			}
			for _, r := range p.Spec.Egress {
				if !yieldAll(r.To) {
					return
				}
			}
		}
		for _, p := range o.ClusterPolicies {
			for _, r := range p.Spec.Egress {
				for _, to := range r.To {
					if slices.ContainsFunc(to.Networks, func(c v1alpha2.CIDR) bool { return !yield(string(c)) }) {
						return
					}
				}
			}
		}
	}
}

// mentionIPv6 reports whether a policy has a range of IPv6 addresses, or a Node one for its pods.
func (o Objects) mentionIPv6() bool {
	isIPv6 := func(cidr string) bool { return strings.Contains(cidr, ":") }
	for cidr := range o.blocks() {
		if isIPv6(cidr) {
			return true
		}
	}
	return slices.ContainsFunc(o.Nodes, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.PodCIDRs, isIPv6)
	})
}

// distinguishAddresses reports whether a policy has a range that some addresses of a family are in and others are not.
func (o Objects) distinguishAddresses() bool {
	for cidr := range o.blocks() {
		if cidr != "0.0.0.0/0" && cidr != "::/0" {
			return true
		}
	}
	return false
}
