package relay

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weave-npc/weave-npc/npc/source/span"
)

const (
	// mostReplicas is how many replicas are asked before the API server is.
	mostReplicas = 3
	// distrust is how long a replica that failed is asked after the others.
	distrust = 30 * time.Second
)

// Calls are the calls of one kind, to a server or to one of several.
type Calls struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Reports are told what is known about a kind. They are called one at a time for each stream.
type Reports struct {
	// Started is called when what was delivered is what the API server has, as far as can be known, and Ended when it may be older.
	Started, Ended func()
	// Failed is called when neither the relay nor the API server answers as it should.
	Failed func(context.Context, error)
}

// record is what is known about one kind: the ways to get it, and how far it was delivered.
type record struct {
	agent           *agent
	kind            string
	relayed, direct Calls
	reports         Reports
	span            *spanned // nil unless replicas are asked only for a span

	mu sync.Mutex
	// version is the newest that was delivered; empty before the first list.
	version string
	// due is when the next list may be made, if it is one that many agents make at once; else zero.
	due      time.Time
	failures map[string]time.Time // the last one of each replica
	broken   map[string]time.Time // when a replica last broke off a list that came as a stream
}

// candidates returns the replicas to ask, those last that failed a short while ago.
func (r *record) candidates(ctx context.Context) []string {
	all := r.agent.replicas.list(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	var good, bad []string
	for _, replica := range all {
		if time.Since(r.failures[replica]) < distrust {
			bad = append(bad, replica)
		} else {
			good = append(good, replica)
		}
	}
	slices.SortStableFunc(bad, func(a, b string) int { return r.failures[a].Compare(r.failures[b]) })
	good = append(good, bad...)
	return good[:min(len(good), mostReplicas)]
}

// failed records that a replica has failed.
func (r *record) failed(replica string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, at := range r.failures {
		if time.Since(at) >= distrust {
			delete(r.failures, other) // it may be gone for good
		}
	}
	r.failures[replica] = time.Now()
}

// brokeOff records that a replica has begun a list as a stream, and not ended it.
func (r *record) brokeOff(replica string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.broken, func(_ string, at time.Time) bool { return time.Since(at) >= distrust })
	r.broken[replica] = time.Now()
}

// breaksOff reports whether a replica has broken off a list a short while ago. It seems to serve whoever asks for the next one, who would never come
// to ask the API server.
func (r *record) breaksOff(replica string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.broken[replica]
	return ok && time.Since(at) < distrust
}

// delivered returns the newest version that was delivered.
func (r *record) delivered() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// deliver records that everything up to a version has been delivered.
func (r *record) deliver(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = version
}

// listed records that everything has been listed.
func (r *record) listed(replica, version string) {
	r.agent.stats.of(replica).Lists.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version, r.due = version, time.Time{}
}

// expire has the next list wait: whoever made this one necessary did so for other agents, too.
func (r *record) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = time.Now().Add(random(r.agent.spread))
}

// await waits until a list may be made.
func (r *record) await(ctx context.Context) error {
	r.mu.Lock()
	due := r.due
	r.mu.Unlock()
	return pause(ctx, time.Until(due))
}

// spanned is what is known about pods if replicas are asked only for a span of them.
type spanned struct {
	node string
	gate *span.Gate

	mu   sync.Mutex
	told string // the newest version of any pod or of all that was passed on, which no replica may be behind
	view *view
}

// view is what the reflector has since its last list. A list begins another one, which an older stream does not touch.
type view struct {
	known *span.Known
	whole bool // it has all pods, not only a span
}

// begin begins with a list.
func (p *spanned) begin() *view {
	p.gate.Limit()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view = &view{known: span.NewKnown()}
	return p.view
}

func (p *spanned) present() *view {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view
}

// newest returns the newest version that was passed on.
func (p *spanned) newest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told
}

// tell records a version that was passed on.
func (p *spanned) tell(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if numbered(version) && (p.told == "" || older(p.told, version)) {
		p.told = version
	}
}

// ask returns the options that ask a replica for the span.
func (p *spanned) ask(o metav1.ListOptions, watch bool) metav1.ListOptions {
	o.FieldSelector = span.Selector(p.node, p.gate.Wanted())
	o.ResourceVersion, o.ResourceVersionMatch = p.newest(), ""
	if watch {
		yes := true
		o.SendInitialEvents, o.AllowWatchBookmarks = &yes, true
	}
	if watch || o.ResourceVersion != "" {
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	return o
}

// listed records a list, or a part of one that goes on. It does nothing if no span is followed.
func (p *spanned) listed(list runtime.Object, whole bool) error {
	if p == nil {
		return nil
	}
	v := p.present()
	err := meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			v.known.Add(m)
		}
		return err
	})
	if err != nil {
		return errors.Wrap(err, "reading a list of pods")
	}
	v.whole = whole
	p.tell(listVersion(list))
	return nil
}
