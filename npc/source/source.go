// Package source follows namespaces, pods and policies, and delivers their facts to a sink.
//
// They come from an API server or from a directory of manifests. An API server may have ClusterNetworkPolicies or not.
// While one of them names nodes as peers, its Nodes are followed too (nodes).
//
//	API server ── informers ── transform ──────────────┐
//	  (relayclient)                                    ├─▶ delivery, one for each kind ─▶ Sink
//	manifests ── directory ── store ── publisher ──────┘
//
//	connection     reports whether the watch of a kind works
//	unsynced       what has never been read, with the reasons; nodename confirms the name of this node
//	policykeeper   which ClusterNetworkPolicies the sink has, while the kind comes and goes (clusterpolicies)
//
// The package knows neither what the facts are for nor what the kernel has. Package manifest reads one file,
// internal/directory decides which files are in force and merges them, snapshot reads once what this package follows,
// and staging separates staged policies.
package source

import (
	"context"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/internal/directory"
	"github.com/weave-npc/weave-npc/npc/source/relayclient"
)

// Source is an API server or a directory of manifests, seen from one node. FromAPI and FromManifests return one. It is
// run once.
type Source struct {
	api       *apiServer // nil with manifests
	manifests *manifests // nil with an API server
	node      *nodeName
	unsynced  *unsynced
}

// FromAPI returns the source that watches an API server on behalf of a node. If the name of the node is empty, the
// source does not check that the node exists. Without policies, ClusterNetworkPolicies are not followed.
func FromAPI(client kubernetes.Interface, policies *apiclient.PolicyClient, node string) Source {
	unsynced := newUnsynced()
	name := newNodeName(node, unsynced)
	get := func(ctx context.Context) error {
		_, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err
	}
	api := &apiServer{watches: watches(client), nodes: nodeWatch(client), client: client, getNode: get,
		node: name, unsynced: unsynced, askKinds: askKinds}
	if policies != nil {
		api.policies = policies
	}
	return Source{api: api, node: name, unsynced: unsynced}
}

// Through has everything listed and watched through a relay, with its client, and at the API server only when the relay
// fails. Without policies, ClusterNetworkPolicies are read from the API server. The source is one that FromAPI
// returned, and does not run yet.
func (s Source) Through(r *relayclient.Relay, client kubernetes.Interface, policies *apiclient.PolicyClient) {
	relayed := watches(client)
	for kind, direct := range s.api.watches {
		s.api.watches[kind] = direct.through(r, kind, relayed[kind])
	}
	s.api.nodes = s.api.nodes.through(r, Nodes, nodeWatch(client))
	if policies != nil {
		s.api.relayPolicies = func(direct listWatcher) listWatcher {
			return direct.through(r, ClusterNetworkPolicies, listWatcher{list: policies.List, watch: checked(policies.Watch, isClusterPolicy)})
		}
	}
	s.api.relay = r
}

// FromManifests returns the source that reads the manifests below a directory on behalf of a node, and follows their
// changes. Package directory describes which files count. If the name of the node is empty, the source does not check
// that the node exists. It fails if the directory cannot be read.
func FromManifests(dir, node string, log *slog.Logger) (Source, error) {
	d, err := directory.Open(dir, log)
	if err != nil {
		return Source{}, err
	}
	unsynced := newUnsynced()
	name := newNodeName(node, unsynced)
	return Source{manifests: newManifests(dir, d, name, unsynced, log), node: name, unsynced: unsynced}, nil
}

// Errors returns the number of manifest files and directories whose present content is not in force, because they
// cannot be read, do not parse or have an object that is refused. It is 0 with an API server.
func (s Source) Errors() int {
	if s.manifests == nil {
		return 0
	}
	return int(s.manifests.bad.Load())
}

// Ignored returns the number of objects in manifests of kinds that are not used. It is 0 with an API server.
func (s Source) Ignored() int {
	if s.manifests == nil {
		return 0
	}
	return int(s.manifests.ignored.Load())
}

// Unsynced returns the number of inputs that have never been read: kinds of objects, files and directories, and the
// Node of this node if no pod is on it.
func (s Source) Unsynced() int {
	if s.unsynced == nil {
		return 0
	}
	return s.unsynced.count()
}

// WhyUnsynced returns the inputs that have never been read, with the reasons; it is empty if all have been.
func (s Source) WhyUnsynced() string { return s.unsynced.String() }

// Run delivers to sink until ctx ends, and returns nil then. Failures meanwhile are logged and retried without end. It
// makes no calls to sink after it has returned.
func (s Source) Run(ctx context.Context, sink Sink, log *slog.Logger) error {
	sink = podWatcher{sink, s.node}
	if s.manifests != nil {
		s.manifests.run(ctx, sink)
		return nil
	}
	return s.api.run(ctx, sink, log)
}
