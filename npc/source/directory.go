package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

const (
	maxManifestSize = 16 << 20 // bytes
	// maxReported is how many problems of one file are logged at a time.
	maxReported = 20
	// A file that is written in place, and not replaced by another, is read when nothing was written for inPlaceFor; what it then
	// lacks of what it said before is missing only after truncatedFor: the rest may be on its way.
	inPlaceFor   = 200 * time.Millisecond
	truncatedFor = time.Second
)

// FromManifests returns the source that reads the manifests below dir and follows their changes. Files named *.yaml,
// *.yml and *.json count, hidden ones and those in hidden directories do not. A file that cannot be used is reported,
// and what it said before stays in force, whole. The error says that dir cannot be read.
func FromManifests(dir string, log *slog.Logger) (Source, error) {
	d, err := newDirectory(dir, log)
	if err != nil {
		return Source{}, err
	}
	return Source{dir: d, client: noStreamingLists{}, watches: map[string]listWatcher{
		Namespaces:      d.shelves[kindNamespace].listWatcher(),
		Pods:            d.shelves[kindPod].listWatcher(),
		NetworkPolicies: d.shelves[kindNetworkPolicy].listWatcher(),
	}}, nil
}

// Objects is what a cluster has, as its API server or a directory of manifests says, in the order of their names.
type Objects struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
}

// Load reads the manifests below dir once. The error joins the problems of all files; the objects are those of the
// files that have none.
func Load(dir string) (Objects, error) {
	d, err := newDirectory(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return Objects{}, err
	}
	problems := d.rescan(rescanOptions{})
	var objects Objects
	for _, o := range d.shelves[kindNamespace].sorted() {
		objects.Namespaces = append(objects.Namespaces, o.(*corev1.Namespace))
	}
	for _, o := range d.shelves[kindPod].sorted() {
		objects.Pods = append(objects.Pods, o.(*corev1.Pod))
	}
	for _, o := range d.shelves[kindNetworkPolicy].sorted() {
		objects.Policies = append(objects.Policies, o.(*networkingv1.NetworkPolicy))
	}
	return objects, joined(problems.problems)
}

// List reads the objects of an API server once.
func List(ctx context.Context, client kubernetes.Interface) (Objects, error) {
	var objects Objects
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return objects, errors.Wrap(err, "listing namespaces")
	}
	if objects.Pods, err = listPods(ctx, client); err != nil {
		return objects, errors.Wrap(err, "listing pods")
	}
	policies, err := client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return objects, errors.Wrap(err, "listing network policies")
	}
	for i := range namespaces.Items {
		objects.Namespaces = append(objects.Namespaces, &namespaces.Items[i])
	}
	for i := range policies.Items {
		objects.Policies = append(objects.Policies, &policies.Items[i])
	}
	return objects, nil
}

// Feed hands everything to sink, as a source that is connected and synced would.
func (o Objects) Feed(sink Sink) {
	for _, kind := range []string{Namespaces, Pods, NetworkPolicies} {
		sink.SetConnected(kind, true)
	}
	for _, n := range o.Namespaces {
		facts, _ := namespaceFacts(n)
		sink.SetNamespace(facts)
	}
	for _, p := range o.Pods {
		facts, _ := podFacts(p)
		sink.SetPod(facts)
	}
	for _, p := range o.Policies {
		sink.SetPolicy(p)
	}
	sink.SetSynced()
}

// joined returns the problems as one error of as many lines, or nil.
func joined(problems []problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return errors.New(strings.Join(lines, "\n"))
}

// directory keeps what the manifests below a directory say.
type directory struct {
	path    string
	log     *slog.Logger
	shelves map[string]*shelf // kind -> its objects
	files   map[string]*file  // path -> what it says
	// reported are the problems that have been logged and still exist.
	reported map[revision]bool
	bad      atomic.Int64 // paths that have problems
	counted  bool         // that the first scan has been logged
	// every is how often the directory is read without an event.
	every time.Duration
}

// file is what we know of one manifest.
type file struct {
	stamp    stamp
	sum      [sha256.Size]byte
	modified metav1.Time
	inForce  []object  // what it said when it was last valid
	problems []problem // of what it says now
}

// stamp tells versions of a file apart without reading it.
type stamp struct {
	device, inode    uint64
	size             int64
	modified, status int64 // nanoseconds
}

// revision is a problem of one version of a file.
type revision struct {
	problem
	sum [sha256.Size]byte
}

func newDirectory(path string, log *slog.Logger) (*directory, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.Errorf("manifests directory %s does not exist; make it, or name another one", path)
	case err != nil:
		return nil, errors.Wrap(err, "manifests directory cannot be read")
	case !info.IsDir():
		return nil, errors.Errorf("manifests directory %s is no directory; name the one that holds the files", path)
	}
	if _, err := os.ReadDir(path); err != nil {
		return nil, errors.Wrap(err, "manifests directory cannot be read")
	}
	return &directory{
		path: filepath.Clean(path),
		log:  log,
		shelves: map[string]*shelf{
			kindNamespace: newShelf(), kindPod: newShelf(), kindNetworkPolicy: newShelf(),
		},
		files:    map[string]*file{},
		reported: map[revision]bool{},
		every:    slowRescan,
	}, nil
}

// rescanOptions says how to read the directory.
type rescanOptions struct {
	watch   func(dir string)       // called before a directory is read, or nil
	force   func(path string) bool // read the file even if its stamp has not changed, or nil
	patient bool                   // leave files that are just being written for the next time
}

// rescanned is what came of it.
type rescanned struct {
	problems []problem
	again    time.Duration // when to read again files that are just being written; 0 if there are none
}

// rescan reads what has changed below the directory, puts it in force and reports what cannot be.
func (d *directory) rescan(options rescanOptions) rescanned {
	s := scan{directory: d, options: options, seen: map[string]bool{}, visited: map[[2]uint64]string{}}
	s.readDirectory(d.path)
	for path := range d.files {
		if !s.seen[path] && !s.unknown(path) {
			delete(d.files, path)
		}
	}
	problems := s.problems
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		problems = append(problems, d.files[path].problems...)
	}
	problems = append(problems, d.publish()...)
	slices.SortStableFunc(problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line))
	})
	d.report(problems)
	return rescanned{problems: problems, again: s.again}
}

// publish puts the objects of all files on the shelves. Where two files have the same one, the first path's counts.
func (d *directory) publish() []problem {
	type origin struct {
		path string
		line int
	}
	var problems []problem
	origins := map[string]origin{} // object -> where it is
	objects := map[string]map[string]runtime.Object{kindNamespace: {}, kindPod: {}, kindNetworkPolicy: {}}
	created := map[string]metav1.Time{} // kind and key -> modification time of its file
	implied := map[string]metav1.Time{} // namespace -> modification time of the file that names it
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		file := d.files[path]
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

// report logs the problems that are new, and the paths that have none any more.
func (d *directory) report(problems []problem) {
	before := map[string]bool{}
	for r := range d.reported {
		before[r.path] = true
	}
	reported := map[revision]bool{}
	logged := map[string]int{} // path -> new problems
	for _, p := range problems {
		r := revision{problem: p}
		if f := d.files[p.path]; f != nil {
			r.sum = f.sum
		}
		reported[r] = true
		if d.reported[r] {
			continue
		}
		if logged[p.path]++; logged[p.path] <= maxReported {
			d.log.Error(p.Error())
		}
	}
	for path, n := range logged {
		if n > maxReported {
			d.log.Error(fmt.Sprintf("%s: and %d problems more", path, n-maxReported))
		}
	}
	bad := map[string]bool{}
	for r := range reported {
		bad[r.path] = true
	}
	for path := range before {
		if !bad[path] && d.files[path] != nil {
			d.log.Info("manifest is in force again", "path", path)
		}
	}
	d.reported = reported
	d.bad.Store(int64(len(bad)))
}

// scan is one walk through the directory.
type scan struct {
	*directory
	options    rescanOptions
	seen       map[string]bool      // manifests that exist
	visited    map[[2]uint64]string // device and inode of a directory -> its path
	unreadable []string             // directories
	problems   []problem
	again      time.Duration // until files that are just being written should be read; 0 if there are none
}

// unknown says that we cannot tell whether path still exists.
func (s *scan) unknown(path string) bool {
	return slices.ContainsFunc(s.unreadable, func(dir string) bool {
		return strings.HasPrefix(path, dir+string(filepath.Separator))
	})
}

func (s *scan) refuse(path string, err error) {
	text := err.Error()
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		text = pathError.Op + ": " + pathError.Err.Error()
	}
	s.problems = append(s.problems, problem{path: path, text: text})
}

func (s *scan) readDirectory(dir string) {
	info, err := os.Stat(dir)
	if err == nil {
		id := identify(info)
		if first, ok := s.visited[[2]uint64{id.device, id.inode}]; ok {
			s.refuse(dir, errors.Errorf("is the same directory as %s, which is read", first))
			return
		}
		s.visited[[2]uint64{id.device, id.inode}] = dir
		if s.options.watch != nil {
			s.options.watch(dir)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if dir != s.path && errors.Is(err, fs.ErrNotExist) {
			return // removed meanwhile
		}
		s.refuse(dir, err)
		s.unreadable = append(s.unreadable, dir)
		return
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			s.readDirectory(path)
		case !isManifest(path):
		case err == nil && info.Mode().IsRegular():
			s.readFile(path)
		case err == nil:
			s.seen[path] = true
			s.refuse(path, errors.New("is no regular file"))
		case errors.Is(err, fs.ErrNotExist) && entry.Type()&fs.ModeSymlink == 0:
			// Removed meanwhile.
		default:
			s.seen[path] = true
			s.refuse(path, err)
		}
	}
}

func isManifest(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func identify(info fs.FileInfo) stamp {
	id := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode, id.status = sys.Dev, sys.Ino, sys.Ctim.Nano()
	}
	return id
}

// beingWritten says that a file has changed a moment ago, and sees to it that it is read later.
func (s *scan) beingWritten(now stamp, before *file) bool {
	quiet := settle
	if now.inPlaceOf(before) {
		quiet = inPlaceFor
	}
	return s.youngerThan(quiet, now)
}

// beingTruncated says that a file lacks something since a moment ago, and sees to it that it is read later.
func (s *scan) beingTruncated(now stamp, before *file, said []object) bool {
	if !now.inPlaceOf(before) {
		return false
	}
	says := map[string]bool{}
	for _, o := range said {
		says[o.String()] = true
	}
	lacks := func(o object) bool { return !says[o.String()] }
	return slices.ContainsFunc(before.inForce, lacks) && s.youngerThan(truncatedFor, now)
}

// youngerThan says that a file was written within a time, and sees to it that it is read after that.
func (s *scan) youngerThan(quiet time.Duration, now stamp) bool {
	age := time.Since(time.Unix(0, now.modified))
	if age < 0 || age >= quiet {
		return false
	}
	s.waitFor(quiet - age)
	return true
}

// inPlaceOf says whether this is the file that was read before, written anew.
func (now stamp) inPlaceOf(before *file) bool {
	return before != nil && now.device == before.stamp.device && now.inode == before.stamp.inode
}

// forget sees to it that the next scan reads the file, even if its stamp stays the same.
func (s *scan) forget(f *file) {
	if f != nil {
		f.stamp.modified = 0
	}
}

func (s *scan) waitFor(d time.Duration) {
	if s.again == 0 || d < s.again {
		s.again = d
	}
}

// readFile takes what a file says now, if that has changed. What cannot be used leaves in force what it said before.
func (s *scan) readFile(path string) {
	s.seen[path] = true
	before := s.files[path]
	handle, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		s.refuse(path, err)
		return
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		s.refuse(path, err)
		return
	}
	now := identify(info)
	forced := s.options.force != nil && s.options.force(path)
	if before != nil && before.stamp == now && !forced {
		return
	}
	if s.options.patient && s.beingWritten(now, before) {
		s.forget(before)
		return
	}
	if now.size > maxManifestSize {
		s.refuse(path, errors.Errorf("has %d bytes, more than %d; split it", now.size, maxManifestSize))
		return
	}
	data, err := io.ReadAll(io.LimitReader(handle, maxManifestSize))
	if err != nil {
		s.refuse(path, err)
		return
	}
	if info, err := handle.Stat(); err == nil && s.options.patient && identify(info) != now {
		s.waitFor(settle)
		s.forget(before)
		return
	}
	sum := sha256.Sum256(data)
	if before != nil && before.sum == sum {
		before.stamp = now
		return
	}
	said := parseManifest(path, data)
	for _, kind := range said.ignored {
		s.log.Debug("kind in manifest is ignored", "path", path, "kind", kind)
	}
	if s.options.patient && s.beingTruncated(now, before, said.objects) {
		s.forget(before)
		return
	}
	after := &file{stamp: now, sum: sum, modified: metav1.NewTime(info.ModTime().Truncate(time.Second)),
		inForce: said.objects, problems: said.problems}
	if len(said.problems) > 0 {
		after.inForce = nil
		if before != nil {
			after.inForce = before.inForce
			after.modified = before.modified
		}
	}
	s.files[path] = after
}
