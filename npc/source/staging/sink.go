package staging

import (
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// SetPolicy implements source.Sink.
func (s *Sink) SetPolicy(o *networkingv1.NetworkPolicy) {
	key := staged.Key{Namespace: o.Namespace, Name: o.Name}
	s.set(s.read(key, &o.ObjectMeta), func() { s.Sink.SetPolicy(o) },
		func() { s.Sink.DeletePolicy(o.Namespace, o.Name, "") },
		func(c staged.Operation) { s.config.Stage.StagePolicy(key, c, o) })
}

// SetClusterPolicy implements source.Sink.
func (s *Sink) SetClusterPolicy(o *v1alpha2.ClusterNetworkPolicy) {
	key := staged.Key{Name: o.Name}
	s.set(s.read(key, &o.ObjectMeta), func() { s.Sink.SetClusterPolicy(o) },
		func() { s.Sink.DeleteClusterPolicy(o.Name, "") },
		func(c staged.Operation) { s.config.Stage.StageClusterPolicy(key, c, o) })
}

// read returns what a policy's annotations ask for.
func (s *Sink) read(key staged.Key, m *metav1.ObjectMeta) *object {
	return &object{Status: s.config.Mode.Status(key, m.Annotations), uid: m.UID}
}

// set has a policy enforced or staged.
func (s *Sink) set(p *object, enforce, cease func(), stage func(staged.Operation)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.Staged {
		s.unstage(p.Key, p)
		s.enforced[p.Key] = p.uid
		enforce()
		s.report(p.Key.Namespace)
		return
	}
	s.annotate(p)
	stage(p.Operation)
	if _, was := s.enforced[p.Key]; was {
		delete(s.enforced, p.Key)
		cease()
		s.config.Report(Notice{Key: p.Key, UID: p.uid, Text: "it is staged: it is not enforced any more"})
	}
	s.report(p.Key.Namespace)
}

// annotate keeps a policy that is staged, or should be.
func (s *Sink) annotate(p *object) {
	of := s.annotated[p.Key.Namespace]
	if of == nil {
		of = map[staged.Key]*object{}
		s.annotated[p.Key.Namespace] = of
	}
	if was := of[p.Key]; was != nil {
		p.reported = was.reported
	}
	of[p.Key] = p
}

// unstage removes a policy from its group, if it is in one. p is the policy as it now is; it may be nil.
func (s *Sink) unstage(key staged.Key, p *object) {
	of := s.annotated[key.Namespace]
	if was := of[key]; was != nil && was.Staged {
		s.config.Stage.Unstage(key)
	}
	if p != nil && p.Problem != "" {
		s.annotate(p)
		return
	}
	if delete(of, key); len(of) == 0 {
		delete(s.annotated, key.Namespace)
	}
}

// DeletePolicy implements source.Sink.
func (s *Sink) DeletePolicy(namespace, name string, uid types.UID) {
	s.delete(staged.Key{Namespace: namespace, Name: name}, uid, func() { s.Sink.DeletePolicy(namespace, name, uid) })
}

// DeleteClusterPolicy implements source.Sink.
func (s *Sink) DeleteClusterPolicy(name string, uid types.UID) {
	s.delete(staged.Key{Name: name}, uid, func() { s.Sink.DeleteClusterPolicy(name, uid) })
}

func (s *Sink) delete(key staged.Key, uid types.UID, cease func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.annotated[key.Namespace][key]; p != nil && (uid == "" || p.uid == uid) {
		s.unstage(key, nil)
	}
	if is, ok := s.enforced[key]; ok && (uid == "" || is == uid) {
		delete(s.enforced, key)
		cease()
	}
	s.report(key.Namespace)
}

// SetSynced implements source.Sink. From now on a policy that another one names can be missed.
func (s *Sink) SetSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Sink.SetSynced()
	s.synced = true
	for _, namespace := range slices.Sorted(maps.Keys(s.annotated)) {
		s.report(namespace)
	}
}
