package enforce

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

const (
	// relayPort and relayMetricsPort are where a replica listens by default.
	relayPort        = 6785
	relayMetricsPort = 6786
)

// relayed is a harness whose agents read through the relay, with a real API server behind it. Replicas are on the
// network of nodes, one on each.
type relayed struct {
	*harness
	cluster  *cluster
	dir      string // of what replicas and agents need
	replicas []*daemon
}

// startRelayed starts a harness whose cluster has a state.
func startRelayed(t *testing.T, backend lab.Backend, state change) *relayed {
	t.Helper()
	w, c := newCluster(t, backend)
	c.assignRanges(t, w)
	c.define(t, c.definition(t, anything))
	c.write(t, w.objects(state))
	r := &relayed{harness: w, cluster: c, dir: t.TempDir()}
	var addrs []netip.Addr
	var where []string
	for _, n := range w.Nodes() {
		addrs = append(addrs, n.Addr4())
		where = append(where, netip.AddrPortFrom(n.Addr4(), relayPort).String())
	}
	authority, err := apiserver.NewAuthority(r.dir)
	c.must(t, err)
	c.must(t, authority.WriteServer(addrs))
	r.makeAccount(t)
	r.renewToken(t)
	binary := buildRelay(t)
	for _, n := range w.Nodes() {
		d := &daemon{node: n, binary: binary, log: &output{}, args: []string{"--kubeconfig", c.server.Kubeconfig(), "--ready-after", "0s",
			"--tls-cert", filepath.Join(r.dir, apiserver.ServerCertFile), "--tls-key", filepath.Join(r.dir, apiserver.ServerKeyFile)}}
		d.start(t)
		d.endWith(t)
		r.replicas = append(r.replicas, d)
	}
	for _, d := range r.replicas {
		r.awaitReplica(t, d)
	}
	w.startAPIDaemons(t, c, "--relay", strings.Join(where, ","),
		"--relay-ca", filepath.Join(r.dir, apiserver.AuthorityFile), "--relay-token", r.token(), "--relay-jitter", "1s")
	return r
}

// buildRelay builds the relay, which is a module of its own, and returns its path.
func buildRelay(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weave-npc-relay")
	if out, err := exec.Command("go", "-C", "../../cmd/weave-npc-relay", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("building weave-npc-relay: %v\n%s", err, out)
	}
	return path
}

// makeAccount makes the service account of agents. The API server makes its namespace a moment after it has begun to
// answer.
func (r *relayed) makeAccount(t *testing.T) {
	t.Helper()
	var err error
	await.Within(t, timeout, func() bool {
		_, err = r.cluster.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "weave-npc"}}, metav1.CreateOptions{})
		return err == nil
	}, func() string { return err.Error() })
}

// token returns the file with the agents' token.
func (r *relayed) token() string { return filepath.Join(r.dir, "token") }

// renewToken gives agents a new token, as the kubelet does: the file is whole at any time.
func (r *relayed) renewToken(t *testing.T) {
	t.Helper()
	answer, err := r.cluster.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), "weave-npc",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"weave-npc-relay"}}}, metav1.CreateOptions{})
	r.cluster.must(t, err)
	r.cluster.must(t, os.WriteFile(r.token()+".new", []byte(answer.Status.Token), 0o600))
	r.cluster.must(t, os.Rename(r.token()+".new", r.token()))
}

// awaitReplica waits until a replica has listed everything.
func (r *relayed) awaitReplica(t *testing.T, d *daemon) {
	t.Helper()
	var said string
	await.Within(t, timeout, func() bool {
		var status int
		status, said = d.getAt(relayMetricsPort, "/readyz")
		return status == http.StatusOK
	}, func() string {
		return "the relay on " + d.node.Name() + " is not ready: " + said + "\n" + d.log.String()
	})
}

// served returns how many watches of agents a replica has open.
func served(d *daemon) int {
	_, text := d.getAt(relayMetricsPort, "/metrics")
	return sum(text, `weavenpcrelay_watchers\{.*\}`)
}

// reading is what an agent reports about where it reads.
type reading struct{ relayed, direct, moves, lists int }

// reads returns where an agent reads, and false if it does not answer.
func reads(d *daemon) (reading, bool) {
	status, text := d.get("/metrics")
	return reading{relayed: sum(text, `weavenpc_relay_watches\{through="relay"\}`), direct: sum(text, `weavenpc_relay_watches\{through="api"\}`),
		moves: sum(text, `weavenpc_relay_moves_total\{.*\}`), lists: sum(text, `weavenpc_relay_lists_total\{.*\}`)}, status == http.StatusOK
}

// sum adds the values of the metrics that match.
func sum(text, pattern string) (all int) {
	for _, m := range regexp.MustCompile(`(?m)^`+pattern+` (\d+)$`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		all += n
	}
	return all
}

// restart starts a daemon again once it has ended, which it may have been asked to do.
func (d *daemon) restart(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	select {
	case <-d.end.seen:
	case <-ctx.Done():
		t.Fatalf("%s on %s does not end\n%s", filepath.Base(d.cmd.Path), d.node, d.log)
	}
	d.start(t)
}
