package connections

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// ftpPolicies allow web nothing but FTP to db, and isolate both.
func ftpPolicies() e2e.Change {
	return e2e.Do(e2e.Base(), e2e.Policy("shop/web", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 21}]}]`), e2e.Policy("shop/db", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 21}]}]`))
}

// assignHelper has conntrack's helper for FTP follow connections to port 21.
func assignHelper(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	for _, iptables := range []string{"iptables-", "ip6tables-"} {
		e2e.Run(t, w.Hosts["n1"], iptables+string(w.Backend),
			strings.Fields("-w -t raw -A PREROUTING -p tcp --dport 21 -j CT --helper ftp")...)
	}
}

// announced returns what a client or a server of FTP announces: that it listens on a port.
func announced(family int, server bool, at netip.Addr, port uint16) string {
	comma := fmt.Sprintf("%s,%d,%d", strings.ReplaceAll(at.String(), ".", ","), port>>8, port&0xff)
	switch {
	case family == 4 && server:
		return "227 Entering Passive Mode (" + comma + ")\r\n"
	case family == 4:
		return "PORT " + comma + "\r\n"
	case server:
		return fmt.Sprintf("229 Entering Extended Passive Mode (|||%d|)\r\n", port)
	}
	return fmt.Sprintf("EPRT |2|%s|%d|\r\n", at, port)
}

// opens reports whether, over an allowed connection, a port that no policy allows can be opened: the server's
// (passive), or the client's. The server sends back what it is sent.
func opens(t *testing.T, w *e2e.Cluster, family int, passive bool) bool {
	t.Helper()
	client, server := w.Hosts["web"], w.Hosts["db"]
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	control, err := client.DialContext(ctx, "tcp", netip.AddrPortFrom(server.Addr(family), 21).String())
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	from, to := client, server
	if !passive {
		from, to = server, client
	}
	line := announced(family, passive, to.Addr(family), 80)
	exchange(t, control, "", server.Name()+"\n")
	exchange(t, control, "NOOP\r\n", "NOOP\r\n") // the helper reads a line once it has seen one before
	exchange(t, control, line, line)
	verdict, err := from.Probe(t.Context(), lab.Packet{Proto: "tcp", To: to.Addr(family), Port: 80,
		Timeout: e2e.DeniedTimeout})
	if err != nil {
		t.Fatal(err)
	}
	return verdict == lab.Allowed
}

// exchange sends a text, which may be empty, and reads the answer.
func exchange(t *testing.T, c net.Conn, text, answer string) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(e2e.Converged)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(answer))
	for n := 0; n < len(got); {
		more, err := c.Read(got[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	if string(got) != answer {
		t.Fatalf("%q is answered by %q, not %q", text, got, answer)
	}
}

// TestS53_WhatAHelperExpectsIsEvaluated has pods announce ports over an allowed connection that conntrack's helper for
// FTP follows.
func TestS53_WhatAHelperExpectsIsEvaluated(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, c := range []struct {
			name    string
			args    []string
			allowed bool
		}{
			{name: "no_helper_is_allowed"},
			{name: "another_is_allowed", args: []string{"--allow-helpers=tftp"}},
			{name: "it_is_allowed", args: []string{"--allow-helpers=tftp,ftp"}, allowed: true},
		} {
			t.Run(c.name, func(t *testing.T) {
				w := e2e.New(t, backend, lab.Config{})
				if err := w.Hosts["db"].Serve("tcp", 21); err != nil {
					t.Fatal(err)
				}
				assignHelper(t, w)
				w.Begin(t, ftpPolicies(), c.args...)
				w.Expect(t, e2e.Wants{"tcp 80": "-*>web,db -web,db>*"})
				e2e.EachFamily(func(family int) {
					for _, passive := range []bool{true, false} {
						if got := opens(t, w, family, passive); got != c.allowed {
							t.Errorf("IPv%d, passive %t: a port is opened: %t\n%s", family, passive, got, w.State())
						}
					}
				})
				if c.allowed {
					return
				}
				w.Apply(t, w.Objects(e2e.Base()))
				e2e.EachFamily(func(family int) {
					for _, passive := range []bool{true, false} {
						if !opens(t, w, family, passive) {
							t.Errorf("IPv%d, passive %t: nothing denies it, and the port is not opened\n%s", family,
								passive, w.State())
						}
					}
				})
			})
		}
	})
}
