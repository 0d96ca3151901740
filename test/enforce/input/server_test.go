package input

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestTheServerChangesNothingAndIsBounded checks that requests change nothing and cannot keep weave-npc busy.
func TestTheServerChangesNothingAndIsBounded(t *testing.T) {
	t.Parallel()
	w := e2e.Start(t, lab.NFT, e2e.Base())
	d := w.Daemons[0]
	// ask sends a request as it is, and returns the answer's status line; it is empty if the connection is closed
	// without one.
	ask := func(request string) string {
		t.Helper()
		conn, err := d.Node.DialContext(t.Context(), "tcp", "127.0.0.1:6781")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(e2e.Timeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Fatalf("no answer to %.40q within %s, and the connection is open", request, e2e.Timeout)
		}
		return strings.TrimSpace(line)
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		for method, status := range map[string]int{"GET": http.StatusOK, "POST": http.StatusMethodNotAllowed,
			"PUT":    http.StatusMethodNotAllowed,
			"DELETE": http.StatusMethodNotAllowed} {
			line := ask(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
				method, path))
			if !strings.HasPrefix(line, fmt.Sprintf("HTTP/1.1 %d ", status)) {
				t.Errorf("%s %s: %q, not %d", method, path, line, status)
			}
		}
	}
	long := ask("GET /metrics HTTP/1.1\r\nHost: node\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n")
	if !strings.HasPrefix(long, "HTTP/1.1 431 ") {
		t.Errorf("a header of 64 KiB: %q", long)
	}
	if slow := ask("GET /metrics HTTP/1.1\r\nHost: node\r\n"); strings.HasPrefix(slow, "HTTP/1.1 200") {
		t.Errorf("a header that does not end: %q", slow)
	}
	if slow := ask("GET /healthz HTTP/1.1\r\nHost: node\r\nContent-Length: 1000000000\r\nConnection: close\r\n\r\nx"); slow == "" {
		t.Error("a body that does not end: no answer")
	}
}

// TestABusyPortKeepsNothingFromBeingEnforced occupies the port of the metrics, as a weave-npc that has not ended yet
// may.
func TestABusyPortKeepsNothingFromBeingEnforced(t *testing.T) {
	t.Parallel()
	w := e2e.New(t, lab.NFT, lab.Config{})
	n := w.Node("node1")
	var busy net.Listener
	if err := n.Do(func() (err error) {
		busy, err = net.Listen("tcp", ":6781")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	m := w.FromManifests(t, e2e.Do(e2e.Base(), e2e.Policy("shop/p", `{podSelector: {}}`)))
	d := e2e.StartDaemon(t, n, w.DaemonArgs(0, "--manifests", m.Dir)...)
	d.Log.Expect("cannot serve")
	d.AwaitLine(t, 0, "policies are enforced")
	d.AwaitLine(t, 0, "level=WARN.*cannot serve.*--metrics-addr.*in use")
	w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 80}, lab.Dropped)
	busy.Close()
	d.AwaitReady(t)
	if n := strings.Count(d.Log.All(), "cannot serve"); n != 1 {
		t.Errorf("said %d times that it cannot serve\n%s", n, d.Log)
	}
}
