package staging

import (
	"maps"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// defaultGroup is the group of staged policies that name none.
const defaultGroup = "true"

// apart is the sink of a source whose policies are all staged. It ignores all else.
type apart struct{ s *Sink }

// Apart returns a sink that stages all policies. One that has no annotations about it takes the place of the enforced
// policy of its name, if there is one.
func (s *Sink) Apart() source.Sink { return apart{s} }

// SetPolicy implements source.Sink.
func (a apart) SetPolicy(o *networkingv1.NetworkPolicy) {
	key := staged.Key{Namespace: o.Namespace, Name: o.Name, Apart: true}
	a.set(a.read(key, &o.ObjectMeta), func(c staged.Operation) { a.s.config.Stage.StagePolicy(key, c, o) })
}

// SetClusterPolicy implements source.Sink.
func (a apart) SetClusterPolicy(o *v1alpha2.ClusterNetworkPolicy) {
	key := staged.Key{Name: o.Name, Apart: true}
	p := a.read(key, &o.ObjectMeta)
	if p.Problem == "" && apiclient.NamesNodes(o) {
		p.Adds, p.Takes = false, ""
		p.Problem = "nodes as peers are not known to policies of --staged-manifests" // none follows Nodes for them
	}
	a.set(p, func(c staged.Operation) { a.s.config.Stage.StageClusterPolicy(key, c, o) })
}

// read returns what a policy does to its group.
func (a apart) read(key staged.Key, m *metav1.ObjectMeta) *object {
	annotations := map[string]string{staged.Annotation: defaultGroup}
	maps.Copy(annotations, m.Annotations)
	p := &object{Status: a.s.config.Mode.Status(key, annotations), uid: m.UID}
	if p.Problem == "" && p.Adds && p.Takes == "" {
		p.Takes, p.implicit = key.Name, true
	}
	return p
}

func (a apart) set(p *object, stage func(staged.Operation)) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if p.Staged {
		a.s.annotate(p)
		stage(p.Operation)
	} else {
		a.s.unstage(p.Key, p)
	}
	a.s.report(p.Key.Namespace)
}

// DeletePolicy implements source.Sink.
func (a apart) DeletePolicy(namespace, name string, uid types.UID) {
	a.s.delete(staged.Key{Namespace: namespace, Name: name, Apart: true}, uid, nil)
}

// DeleteClusterPolicy implements source.Sink.
func (a apart) DeleteClusterPolicy(name string, uid types.UID) {
	a.s.delete(staged.Key{Name: name, Apart: true}, uid, nil)
}

// SetNamespace implements source.Sink, as the methods below do: what is no policy is known from the other source.
func (apart) SetNamespace(npc.Namespace) {}

// DeleteNamespace implements source.Sink.
func (apart) DeleteNamespace(string, types.UID) {}

// SetPod implements source.Sink.
func (apart) SetPod(npc.Pod) {}

// DeletePod implements source.Sink.
func (apart) DeletePod(string, string, types.UID) {}

// SetNode implements source.Sink.
func (apart) SetNode(npc.Node) {}

// DeleteNode implements source.Sink.
func (apart) DeleteNode(string, types.UID) {}

// SetMissing implements source.Sink.
func (apart) SetMissing(npc.Missing) {}

// SetSynced implements source.Sink.
func (apart) SetSynced() {}

// SetConnected implements source.Sink.
func (apart) SetConnected(string, bool) {}
