package relayclient

import "time"

// freshness is how long what was delivered counts as what the API server has, without a sign from the relay that it is.
// A relay gives one each second while it hears from the API server itself.
const freshness = 3 * time.Second

// pulse reports whether what was delivered of a kind is what the API server has. An open watch at the API server says
// so by itself.
type pulse struct {
	reports Reports
	timer   *time.Timer // of the last sign
	last    time.Time
	up      bool
}

func newPulse(reports Reports) *pulse {
	p := &pulse{reports: reports, timer: time.NewTimer(0)}
	p.timer.Stop()
	return p
}

// opened handles that a watch has been opened. That a relay opens one says nothing, but the sign of another replica
// still counts.
func (p *pulse) opened(l *link) {
	left := freshness - time.Since(p.last)
	switch {
	case l.direct():
		p.timer.Stop()
		p.set(true)
	case left > 0:
		p.timer.Reset(left)
		p.set(true)
	}
}

// sign handles that a relay has said that all is known.
func (p *pulse) sign() {
	p.last = time.Now()
	p.timer.Reset(freshness)
	p.set(true)
}

// expired handles that the relay has not given a sign for too long.
func (p *pulse) expired() { p.set(false) }

// closed handles that a watch has ended.
func (p *pulse) closed(l *link) {
	if l.direct() {
		p.last = time.Now()
	}
	p.timer.Stop()
	p.set(false)
}

func (p *pulse) set(up bool) {
	switch {
	case up == p.up:
		return
	case up:
		p.reports.Started()
	default:
		p.reports.Ended()
	}
	p.up = up
}
