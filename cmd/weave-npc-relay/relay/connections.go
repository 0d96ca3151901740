package relay

import (
	"context"
	"net"
	"net/http"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/auth"
	"github.com/weave-npc/weave-npc/internal/connlimit"
)

// The bounds of connections. One without a token takes up to 100 kB. An agent has one for each of its watches, and
// 5,000 agents may be served by one replica.
const (
	unknownAll, unknownEach = 4096, 32
	agentsAll, agentsEach   = 50_000, 64
)

// connections bounds the connections of agents' port. One is its address's until a token has been accepted on it, and
// then its agent's.
type connections struct {
	unknown connlimit.Clients
	agents  *connlimit.Limit[string]
}

func newConnections() connections {
	return connections{unknown: connlimit.NewClients(unknownAll, unknownEach, unknownAll),
		agents: connlimit.New[string](agentsAll, agentsEach)}
}

// track implements http.Server.ConnState.
func (c connections) track(conn net.Conn, s http.ConnState) {
	c.unknown.Track(conn, s)
	if s != http.StateNew {
		c.agents.Track(conn, "", s)
	}
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// withConn implements http.Server.ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// authenticated returns a handler that counts the connection of each request as its agent's.
func (c connections) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			c.unknown.Remove(conn)
			c.agents.Add(conn, auth.Agent(r.Context()), true)
		}
		next.ServeHTTP(w, r)
	})
}
