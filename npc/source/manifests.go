package source

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source/internal/directory"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

const (
	// firstTimeout is how long the first reading waits for files that are just being written.
	firstTimeout = 2 * time.Second
	// maxKindsNamed limits the kinds that are not used which the log names.
	maxKindsNamed = 20
)

// manifests follows a directory of manifests and delivers the changes. Only the counters are used by several
// goroutines.
type manifests struct {
	path      string
	directory *directory.Directory
	store     *directory.Store
	node      *nodeName
	unsynced  *unsynced
	log       *slog.Logger

	bad     atomic.Int64 // paths that have problems
	ignored atomic.Int64 // objects of kinds that are not used

	counted         bool              // the outcome of a reading has been logged
	loggedKinds     map[string]bool   // kinds that are not used and have been logged
	unreadablePaths map[string]string // those that the last reading found, with the reasons
	empty           bool              // the last reading found no manifest
	missing         npc.Missing       // as the sink knows it
}

func newManifests(
	path string, d *directory.Directory, node *nodeName, unsynced *unsynced, log *slog.Logger,
) *manifests {
	return &manifests{path: filepath.Clean(path), directory: d, store: directory.New(), node: node,
		unsynced: unsynced, log: log,
		loggedKinds: map[string]bool{}}
}

// reading is the outcome of reading the directory once.
type reading struct {
	directory.Result
	nodes map[string]bool // names of Nodes in the manifests
}

// run reads the directory and delivers its changes until ctx ends.
func (m *manifests) run(ctx context.Context, sink Sink) {
	for _, kind := range []string{Namespaces, Pods, NetworkPolicies, ClusterNetworkPolicies} {
		sink.SetConnected(kind, true)
	}
	follower := m.directory.Follow()
	defer follower.Close()
	publisher := newPublisher(newNodeKeeper(sink), m.log)

	r := m.readFirst(ctx, follower)
	publisher.publish(m.store.Take())
	m.setMissing(sink, r)
	sink.SetSynced()
	for follower.Wait(ctx, r.Again) {
		r = m.read(follower)
		publisher.publish(m.store.Take())
		m.setMissing(sink, r)
	}
}

// readFirst reads the directory for the first time, and waits a while for files that are just being written.
func (m *manifests) readFirst(ctx context.Context, follower *directory.Follower) reading {
	deadline := time.Now().Add(firstTimeout)
	r := m.read(follower)
	for r.Waiting && time.Now().Before(deadline) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(r.Again):
		}
		r = m.read(follower)
	}
	return r
}

// read reads the directory, puts the files in force into the store, and logs problems.
func (m *manifests) read(follower *directory.Follower) reading {
	result := follower.Read()
	m.setUnsynced(result.Unsynced)
	merged := m.store.Replace(result.Files)
	m.logIgnored(merged.Ignored)
	m.logChanges(len(result.Files), merged.Changes)
	problems := slices.Concat(result.Problems, merged.Problems)
	manifest.SortProblems(problems)
	m.bad.Store(int64(m.directory.Report(problems)))
	return reading{Result: result, nodes: merged.Nodes}
}

// setUnsynced lists the paths that have never been read.
func (m *manifests) setUnsynced(reasons map[string]string) {
	for path := range m.unreadablePaths {
		if reasons[path] == "" {
			m.unsynced.set(path, "")
		}
	}
	for path, reason := range reasons {
		m.unsynced.set(path, reason)
	}
	m.unreadablePaths = reasons
}

// logIgnored counts the objects of kinds that are not used, and logs each kind once.
func (m *manifests) logIgnored(objects map[string]int) {
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(objects)) {
		total += objects[kind]
		if m.loggedKinds[kind] || len(m.loggedKinds) >= maxKindsNamed {
			continue
		}
		m.loggedKinds[kind] = true
		level, text := slog.LevelInfo, "objects of a kind that is not used are ignored"
		if strings.Contains(kind, "NetworkPolicy") {
			level, text = slog.LevelWarn, "policies of a kind that is not enforced are ignored"
		}
		m.log.Log(context.Background(), level, text, "kind", kind, "objects", objects[kind])
	}
	m.ignored.Store(int64(total))
}

func (m *manifests) logChanges(files int, c directory.UpdateCounts) {
	if c == (directory.UpdateCounts{}) && m.counted {
		return
	}
	m.counted = true
	m.log.Info("manifests read", "files", files, "added", c.Added, "changed", c.Changed, "removed", c.Removed)
}

// setMissing reports to sink what is missing, if that has changed. The objects that are not missing any more have been
// delivered before.
func (m *manifests) setMissing(sink Sink, r reading) {
	m.checkNode(r)
	missing := npc.NothingMissing
	switch {
	case !r.Complete:
		missing = npc.ObjectsMissing
	case !m.node.known():
		missing = npc.NodeMissing
	}
	if missing != m.missing {
		m.missing = missing
		sink.SetMissing(missing)
	}
}

// checkNode confirms the name of this node if a Node has it.
func (m *manifests) checkNode(r reading) {
	empty := len(r.Files) == 0
	if empty && !m.empty {
		m.log.Warn("no manifest is read: the directory has no file named *.yaml, *.yml or *.json", "path", m.path)
	}
	m.empty = empty
	if r.nodes[m.node.name] {
		m.node.confirm()
	}
	switch {
	case m.node.known():
	case empty:
		m.node.doubt(fmt.Sprintf("there is no manifest below %s, and so no Node and no pod with spec.nodeName %q",
			m.path, m.node.name))
	default:
		m.node.doubt(fmt.Sprintf("no Node in the manifests is called %q and no pod has it as spec.nodeName",
			m.node.name))
	}
}
