package upstream

import (
	"sync"
	"time"
)

// silence is how long an upstream watch may bring nothing, not even its end, before what it said is no longer fresh. A
// watch is renewed after three seconds at most.
const silence = 5 * time.Second

// Reached is how far the upstream watch of a kind has come.
type Reached struct {
	// Event is the version of the last event that was passed on; that of the list if there was none since.
	Event uint64
	// Version is what the watch has reached: every event up to it has been passed on.
	Version uint64
	// Fresh is set while the watch stands.
	Fresh bool
	// Listed is when the kind was listed for the first time; zero before.
	Listed time.Time
	// Silent is how long the watch has brought nothing.
	Silent time.Duration
}

// progress follows how far the upstream watch of a kind has come.
type progress struct {
	now func() time.Time

	mu     sync.Mutex // guards the fields below
	at     Reached
	stands bool
	heard  time.Time
}

// reached returns how far the watch has come.
func (p *progress) reached() Reached {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.at
	r.Silent = p.now().Sub(p.heard)
	r.Fresh = p.stands && r.Silent < silence
	return r
}

// hear changes what is known when something was heard of the kind.
func (p *progress) hear(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = p.now()
	change()
}

// listed handles that the kind was listed at a version.
func (p *progress) listed(version uint64) {
	p.hear(func() {
		first := p.at.Listed
		if first.IsZero() {
			first = p.heard
		}
		p.at = Reached{Event: version, Version: version, Listed: first}
	})
}

// event handles that an event is about to be passed on.
func (p *progress) event(version uint64) {
	p.hear(func() { p.at.Event, p.at.Version = version, version })
}

// bookmark handles that everything up to a version has been passed on.
func (p *progress) bookmark(version uint64) {
	p.hear(func() { p.at.Version = max(p.at.Version, version) })
}

// connected handles that a watch stands, or ended as it was asked to.
func (p *progress) connected() { p.hear(func() { p.stands = true }) }

// broken handles that the watch is broken.
func (p *progress) broken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stands = false
}
