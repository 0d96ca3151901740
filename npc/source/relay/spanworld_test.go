package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// policies is the kind by which pods are chosen.
const policies = "networkpolicies"

// fact is a change of a pod, which is of a group, or of a policy, which names a group. Group 0 is that of the node's own pods.
type fact struct {
	version int
	policy  bool
	name    string
	group   int // -1 if it is gone
	uid     int // of a pod
	at      time.Time
}

// manifold is what is in the store of an API server: pods and policies.
type manifold struct {
	mu      sync.Mutex
	version int
	facts   []fact
}

// change makes, changes or deletes something.
func (m *manifold) change(policy bool, name string, group int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := latest(m.facts, policy, m.version)[name]
	if is.group < 0 && group < 0 || is.version == 0 && group < 0 {
		return
	}
	m.version += 2
	uid := is.uid
	if is.version == 0 || is.group < 0 {
		uid = m.version
	}
	m.facts = append(m.facts, fact{m.version, policy, name, group, uid, time.Now()})
}

// ago returns the version that was the newest some time ago.
func (m *manifold) ago(d time.Duration) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	then, version := time.Now().Add(-d), 0
	for _, f := range m.facts {
		if !f.at.After(then) {
			version = f.version
		}
	}
	return version
}

func (m *manifold) now() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version
}

// since returns the changes of a kind between two versions.
func (m *manifold) since(policy bool, after, upTo int) []fact {
	m.mu.Lock()
	defer m.mu.Unlock()
	var facts []fact
	for _, f := range m.facts {
		if f.policy == policy && f.version > after && f.version <= upTo {
			facts = append(facts, f)
		}
	}
	return facts
}

// latest returns the last change of each object of a kind, up to a version.
func latest(facts []fact, policy bool, upTo int) map[string]fact {
	last := map[string]fact{}
	for _, f := range facts {
		if f.policy == policy && f.version <= upTo {
			last[f.name] = f
		}
	}
	return last
}

// at returns what there is of a kind at a version.
func (m *manifold) at(policy bool, version int) map[string]fact {
	last := latest(m.since(policy, 0, version), policy, version)
	maps.DeleteFunc(last, func(_ string, f fact) bool { return f.group < 0 })
	return last
}

// span returns the pods of the node and those that policies name.
func (m *manifold) span(podsUpTo, policiesUpTo int) map[string]fact {
	named := map[int]bool{0: true}
	for _, p := range m.at(true, policiesUpTo) {
		named[p.group] = true
	}
	pods := m.at(false, podsUpTo)
	maps.DeleteFunc(pods, func(_ string, f fact) bool { return !named[f.group] })
	return pods
}

// object returns a pod; version is that of the event.
func (f fact) object(version int) *corev1.Pod {
	p := pod(f.name, version)
	p.UID = types.UID(strconv.Itoa(f.uid))
	return p
}

// place is a replica that computes spans, or the API server.
type place struct {
	*manifold
	relay, plain bool

	guard          sync.Mutex
	down, mute     bool
	frozen, blind  bool          // it hears nothing from its upstream, or nothing of policies
	lag            time.Duration // with which it hears
	pods, policies int           // what it has heard so far
	oldest         int
	refuses        bool // it knows no spans
	unread         bool // it may not read policies
	streams        map[*spanFeed]bool
	lists          []time.Time
	spans          int
}

func newPlace(m *manifold, relay bool) *place {
	return &place{manifold: m, relay: relay, streams: map[*spanFeed]bool{}, pods: m.now(), policies: m.now()}
}

func (p *place) set(change func(*place)) {
	p.guard.Lock()
	defer p.guard.Unlock()
	change(p)
}

// hear has the place hear from its upstream, and returns how far it is.
func (p *place) hear() (pods, policies int) {
	p.guard.Lock()
	defer p.guard.Unlock()
	if !p.frozen {
		p.pods = max(p.pods, p.ago(p.lag))
		if !p.blind && !p.unread {
			p.policies = p.pods
		}
	}
	return p.pods, p.policies
}

func (p *place) cut() {
	p.guard.Lock()
	defer p.guard.Unlock()
	for f := range p.streams {
		f.Stop()
	}
}

func (p *place) kill() {
	p.set(func(p *place) { p.down = true })
	p.cut()
}

func (p *place) heal() {
	p.set(func(p *place) {
		p.down, p.mute, p.frozen, p.blind, p.refuses, p.unread = false, false, false, false, false, false
	})
}

// works reports whether the place can serve an agent.
func (p *place) works() bool {
	p.guard.Lock()
	defer p.guard.Unlock()
	return !p.down && !p.mute && !p.frozen && !p.blind && !p.refuses
}

func (p *place) open() int {
	p.guard.Lock()
	defer p.guard.Unlock()
	return len(p.streams)
}

func (p *place) listed() int {
	p.guard.Lock()
	defer p.guard.Unlock()
	return len(p.lists)
}

// begin waits until the place is as far as is asked for, and returns the node.
func (p *place) begin(ctx context.Context, o metav1.ListOptions) (node string, err error) {
	p.guard.Lock()
	down, refuses := p.down, p.refuses
	p.guard.Unlock()
	if down {
		return "", fmt.Errorf("connection refused")
	}
	if !p.relay {
		if o.FieldSelector != "" {
			return "", apierrors.NewBadRequest("the API server has no spans")
		}
		return "", nil
	}
	selector, err := fields.ParseSelector(o.FieldSelector)
	if err != nil || refuses {
		return "", apierrors.NewBadRequest("no selectors")
	}
	after := 0
	for _, r := range selector.Requirements() {
		switch r.Field {
		case "span":
			node = r.Value
		case "after." + policies:
			after, _ = strconv.Atoi(r.Value)
		default:
			return "", apierrors.NewBadRequest("selector " + r.Field)
		}
	}
	wanted, _ := strconv.Atoi(o.ResourceVersion)
	for range 50 {
		if pods, policies := p.hear(); pods >= wanted && policies >= after {
			return node, nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return "", err
		}
	}
	return "", apierrors.NewTimeoutError("the span is behind", 1)
}

// now returns what a new stream or list begins with.
func (p *place) present(node string) (pods map[string]fact, podsUpTo, policiesUpTo int) {
	podsUpTo, policiesUpTo = p.hear()
	if node == "" {
		return p.at(false, podsUpTo), podsUpTo, policiesUpTo
	}
	return p.span(podsUpTo, policiesUpTo), podsUpTo, policiesUpTo
}

func (p *place) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	node, err := p.begin(ctx, o)
	if err != nil {
		return nil, err
	}
	p.set(func(p *place) { p.lists = append(p.lists, time.Now()) })
	pods, version, _ := p.present(node)
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}}
	for _, f := range pods {
		list.Items = append(list.Items, *f.object(f.version))
	}
	return list, nil
}

func (p *place) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	node, err := p.begin(ctx, o)
	if err != nil {
		return nil, err
	}
	f := &spanFeed{place: p, node: node, ctx: ctx, result: make(chan watch.Event), done: make(chan struct{}), sent: map[string]fact{}}
	initial := o.SendInitialEvents != nil
	if p.plain && initial && !p.relay {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "", nil)
	}
	f.pods, _ = strconv.Atoi(o.ResourceVersion)
	if initial {
		f.sent, f.pods, f.policies = p.present(node)
		for _, is := range f.sent {
			f.first = append(f.first, watch.Event{Type: watch.Added, Object: is.object(is.version)})
		}
		end := f.bookmark()
		end.Object.(*corev1.Pod).Annotations[metav1.InitialEventsAnnotationKey] = "true"
		f.first = append(f.first, end)
	}
	p.set(func(p *place) {
		switch {
		case initial && node != "":
			p.spans++
		case initial:
			p.lists = append(p.lists, time.Now())
		case f.pods < p.oldest:
			status := refusal(410).(apierrors.APIStatus).Status()
			f.first = append(f.first, watch.Event{Type: watch.Error, Object: &status})
		}
		p.streams[f] = true
	})
	go f.run()
	return f, nil
}

// spanFeed is one watch.
type spanFeed struct {
	place          *place
	node           string // empty for all pods
	ctx            context.Context
	first          []watch.Event
	sent           map[string]fact
	pods, policies int // how far it has been fed
	unread         bool
	result         chan watch.Event
	once           sync.Once
	done           chan struct{}
}

func (f *spanFeed) ResultChan() <-chan watch.Event { return f.result }

func (f *spanFeed) Stop() { f.once.Do(func() { close(f.done) }) }

func (f *spanFeed) bookmark() watch.Event {
	b := pod("", f.pods)
	b.Annotations = map[string]string{}
	if f.node != "" && !f.unread {
		b.Annotations["span.weave-npc/"+policies] = strconv.Itoa(f.policies)
	}
	return watch.Event{Type: watch.Bookmark, Object: b}
}

func (f *spanFeed) run() {
	defer close(f.result)
	defer f.place.set(func(p *place) { delete(p.streams, f) })
	every, marked := time.Minute, time.Now()
	if f.place.relay {
		every = time.Second
	}
	for {
		f.place.guard.Lock()
		mute, silent := f.place.mute, f.place.frozen || f.place.blind
		f.unread = f.place.unread
		f.place.guard.Unlock()
		var events []watch.Event
		if !mute {
			before := f.policies
			events = append(events, f.first...)
			events, f.first = append(events, f.next()...), nil
			if !silent && (time.Since(marked) >= every || f.policies != before && f.node != "") {
				marked = time.Now()
				events = append(events, f.bookmark())
			}
		}
		if !send(f.ctx, f.done, f.result, events, 0) {
			return
		}
	}
}

// next returns what happened since the last call: what enters comes before what leaves.
func (f *spanFeed) next() []watch.Event {
	pods, policies := f.place.hear()
	if f.node == "" {
		return f.whole(pods)
	}
	now := f.place.span(pods, policies)
	gone := map[string]int{} // the versions of deletions
	for _, is := range f.place.since(false, f.pods, pods) {
		if is.group < 0 {
			gone[is.name+strconv.Itoa(is.uid)] = is.version
		}
	}
	var events, left []watch.Event
	for _, name := range slices.Sorted(maps.Keys(now)) {
		is, was := now[name], f.sent[name]
		switch {
		case was.version == 0:
			events = append(events, watch.Event{Type: watch.Added, Object: is.object(is.version)})
		case was.uid != is.uid:
			events = append(events, watch.Event{Type: watch.Deleted, Object: was.object(gone[name+strconv.Itoa(was.uid)])},
				watch.Event{Type: watch.Added, Object: is.object(is.version)})
		case was.version != is.version:
			events = append(events, watch.Event{Type: watch.Modified, Object: is.object(is.version)})
		}
	}
	for name, was := range f.sent {
		if _, is := now[name]; !is {
			left = append(left, f.gone(was, gone[name+strconv.Itoa(was.uid)]))
		}
	}
	f.sent, f.pods, f.policies = now, pods, policies
	return append(events, left...)
}

// gone returns that a pod was deleted at a version, or has left the span if that is none.
func (f *spanFeed) gone(was fact, deleted int) watch.Event {
	p := was.object(max(was.version, deleted))
	if deleted == 0 {
		p.Annotations = map[string]string{"span.weave-npc/left": "true"}
	}
	return watch.Event{Type: watch.Deleted, Object: p}
}

// whole returns all that happened since the last call.
func (f *spanFeed) whole(pods int) []watch.Event {
	var events []watch.Event
	for _, is := range f.place.since(false, f.pods, pods) {
		what := watch.Modified
		switch {
		case is.group < 0:
			what = watch.Deleted
		case is.uid == is.version:
			what = watch.Added
		}
		events = append(events, watch.Event{Type: what, Object: is.object(is.version)})
	}
	f.pods = max(f.pods, pods)
	return events
}

// versions returns the versions of pods by name.
func versions(pods map[string]fact) map[string]string {
	out := map[string]string{}
	for name, f := range pods {
		out[name] = strconv.Itoa(f.version)
	}
	return out
}

// differences returns what differs between what is there and what should be.
func differences(got, want map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			texts = append(texts, fmt.Sprintf("%s is %q, want %q", name, got[name], want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, is := want[name]; !is {
			texts = append(texts, name+" is there")
		}
	}
	return strings.Join(texts, "; ")
}
