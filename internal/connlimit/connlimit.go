// Package connlimit bounds the connections of an http.Server, in all and for each client.
//
//	server.ConnState = connlimit.NewClients(256, 8, 64).Track
//
// netutil.LimitListener lets new connections wait while there are too many, behind those of a client that keeps them
// open. Here a new connection ends an old one: of its own client if that has too many, else of the client that has most.
// Connections without a request go first. What a client opens therefore costs itself.
package connlimit

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// Limit holds the connections of clients, which are identified by K. Its methods may be called by several goroutines.
type Limit[K comparable] struct {
	all, each int

	mu      sync.Mutex // guards the fields below
	entries map[net.Conn]*entry[K]
	clients map[K][]*entry[K] // oldest first
}

// entry is a connection.
type entry[K comparable] struct {
	conn   net.Conn
	client K
	busy   bool // a request is being answered
}

// New returns a limit of connections in all, and of each client.
func New[K comparable](all, each int) *Limit[K] {
	return &Limit[K]{all: all, each: each, entries: map[net.Conn]*entry[K]{}, clients: map[K][]*entry[K]{}}
}

// Track records a connection's new state, as http.Server.ConnState reports it.
func (l *Limit[K]) Track(c net.Conn, client K, s http.ConnState) {
	switch s {
	case http.StateNew:
		l.Add(c, client, false)
	case http.StateActive, http.StateIdle:
		l.setBusy(c, s == http.StateActive)
	case http.StateClosed, http.StateHijacked:
		l.forget(c)
	}
}

// Add adds a connection, or does nothing if its client has it already. If there are too many, it closes one, which may
// be the new one.
func (l *Limit[K]) Add(c net.Conn, client K, busy bool) {
	l.mu.Lock()
	var excess *entry[K]
	if e := l.entries[c]; e == nil || e.client != client {
		l.remove(c)
		excess = l.add(&entry[K]{conn: c, client: client, busy: busy})
	}
	l.mu.Unlock()
	if excess != nil {
		abort(excess.conn)
	}
}

// add returns the connection to close; nil if there is none.
func (l *Limit[K]) add(e *entry[K]) *entry[K] {
	l.entries[e.conn], l.clients[e.client] = e, append(l.clients[e.client], e)
	if len(l.clients[e.client]) <= l.each && len(l.entries) <= l.all {
		return nil
	}
	from := e.client
	if len(l.clients[from]) <= l.each {
		from = l.largest(from)
	}
	entries := l.clients[from]
	excess := entries[0]
	if from == e.client {
		excess = e
	}
	if i := idle(entries); i >= 0 {
		excess = entries[i]
	}
	l.remove(excess.conn)
	return excess
}

// largest returns the client that has most connections: at least one more than the given one, or as many and one of them
// idle. It returns the given one if there is none.
func (l *Limit[K]) largest(than K) K {
	from, most := than, len(l.clients[than])
	for client, entries := range l.clients {
		if len(entries) > most || from == than && len(entries) == most && idle(entries) >= 0 {
			from, most = client, len(entries)
		}
	}
	return from
}

// idle returns the index of the oldest connection without a request; -1 if there is none.
func idle[K comparable](entries []*entry[K]) int {
	return slices.IndexFunc(entries, func(e *entry[K]) bool { return !e.busy })
}

// setBusy records whether a request is being answered on a connection.
func (l *Limit[K]) setBusy(c net.Conn, busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[c]; e != nil {
		e.busy = busy
	}
}

// forget removes a connection, which counts no longer.
func (l *Limit[K]) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
}

// remove removes a connection. l.mu is held.
func (l *Limit[K]) remove(c net.Conn) {
	e := l.entries[c]
	if e == nil {
		return
	}
	delete(l.entries, c)
	rest := l.clients[e.client]
	if i := slices.Index(rest, e); len(rest) > 1 {
		l.clients[e.client] = slices.Delete(rest, i, i+1)
	} else {
		delete(l.clients, e.client)
	}
}

// abort closes a connection at once, without a TLS alert, for which the peer would have to read, and without a
// descriptor or a port that lingers.
func abort(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it is closed in any case
	}
	_ = c.Close() // it may be closed already
}

// Client returns the address that a connection comes from, and whether that is this host itself: such a connection has
// the same address at both ends, which none from elsewhere can have.
func Client(remote, local net.Addr) (client netip.Addr, own bool) {
	client = address(remote)
	return client, client.IsValid() && client == address(local)
}

func address(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Clients bounds the connections of clients by their addresses. Those of this host itself are counted apart, so that no
// other client can close them.
type Clients struct{ others, own *Limit[netip.Addr] }

// NewClients returns a limit of connections in all, of each client, and of this host itself.
func NewClients(all, each, own int) Clients {
	return Clients{others: New[netip.Addr](all, each), own: New[netip.Addr](own, own)}
}

// Track records a connection's new state. It is an http.Server.ConnState.
func (cs Clients) Track(c net.Conn, s http.ConnState) {
	client, own := Client(c.RemoteAddr(), c.LocalAddr())
	if own {
		cs.own.Track(c, client, s)
	} else {
		cs.others.Track(c, client, s)
	}
}

// Remove removes a connection, which counts no longer.
func (cs Clients) Remove(c net.Conn) {
	cs.own.forget(c)
	cs.others.forget(c)
}

// The bounds of what a node serves to probes and scrapes. There may be some hundred pods on a node.
const (
	nodeAll, nodeEach = 256, 8
	nodeOwn           = 64
)

// Node returns the limit of the connections to an address of a node; the kubelet's are the node's own.
func Node() Clients { return NewClients(nodeAll, nodeEach, nodeOwn) }
