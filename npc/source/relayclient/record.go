package relayclient

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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

// Reports are callbacks about the state of a kind. They are called one at a time for each stream.
type Reports struct {
	// Started is called when the delivered objects are known to be up to date, and Ended when they may be out of date.
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

	mu sync.Mutex // guards the fields below
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

// breaksOff reports whether a replica has broken off a list a short while ago. It seems to serve whoever asks for the
// next one, who would never come to ask the API server.
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
