package faults

import (
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
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

const (
	// relayPort and relayMetricsPort are where a replica listens by default.
	relayPort        = 6785
	relayMetricsPort = 6786
)

// relayed is a cluster whose agents read through the relay, with a real API server behind it. Replicas are on the
// network of nodes, one on each.
type relayed struct {
	*e2e.Cluster
	cluster  *e2e.APIServer
	dir      string // of what replicas and agents need
	replicas []*e2e.Daemon
}

// startRelayed starts a cluster whose cluster has a state.
func startRelayed(t *testing.T, backend lab.Backend, state e2e.Change) *relayed {
	t.Helper()
	w, c := e2e.NewAPIServer(t, backend)
	c.AssignRanges(t, w)
	c.Define(t, c.Definition(t, e2e.AdmitAnything))
	c.Write(t, w.Objects(state))
	r := &relayed{Cluster: w, cluster: c, dir: t.TempDir()}
	var addrs []netip.Addr
	var where []string
	for _, n := range w.Nodes() {
		addrs = append(addrs, n.Addr4())
		where = append(where, netip.AddrPortFrom(n.Addr4(), relayPort).String())
	}
	authority, err := apiserver.NewAuthority(r.dir)
	c.Must(t, err)
	c.Must(t, authority.WriteServer(addrs))
	r.makeAccount(t)
	r.renewToken(t)
	binary := buildRelay(t)
	for _, n := range w.Nodes() {
		d := &e2e.Daemon{Node: n, Binary: binary, Log: &e2e.Output{}, Args: []string{"--kubeconfig",
			c.Server.Kubeconfig(), "--ready-after", "0s",
			"--tls-cert", filepath.Join(r.dir, apiserver.ServerCertFile), "--tls-key",
			filepath.Join(r.dir, apiserver.ServerKeyFile)}}
		d.Start(t)
		d.EndWith(t)
		r.replicas = append(r.replicas, d)
	}
	for _, d := range r.replicas {
		r.awaitReplica(t, d)
	}
	w.StartAPIDaemons(t, c, "--relay", strings.Join(where, ","),
		"--relay-ca", filepath.Join(r.dir, apiserver.AuthorityFile), "--relay-token", r.token(), "--relay-jitter", "1s")
	return r
}

// buildRelay builds the relay, which is a module of its own, and returns its path.
func buildRelay(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weave-npc-relay")
	if out, err := exec.Command("go", "-C", "../../../cmd/weave-npc-relay", "build", "-o", path,
		".").CombinedOutput(); err != nil {
		t.Fatalf("building weave-npc-relay: %v\n%s", err, out)
	}
	return path
}

// makeAccount makes the service account of agents. The API server makes its namespace a moment after it has begun to
// answer.
func (r *relayed) makeAccount(t *testing.T) {
	t.Helper()
	var err error
	await.Within(t, e2e.Timeout, func() bool {
		_, err = r.cluster.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "weave-npc"}}, metav1.CreateOptions{})
		return err == nil
	}, func() string { return err.Error() })
}

// token returns the file with the agents' token.
func (r *relayed) token() string { return filepath.Join(r.dir, "token") }

// renewToken gives agents a new token, as the kubelet does: the file is whole at any time.
func (r *relayed) renewToken(t *testing.T) {
	t.Helper()
	answer, err := r.cluster.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(),
		"weave-npc",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"weave-npc-relay"}}}, metav1.CreateOptions{})
	r.cluster.Must(t, err)
	r.cluster.Must(t, os.WriteFile(r.token()+".new", []byte(answer.Status.Token), 0o600))
	r.cluster.Must(t, os.Rename(r.token()+".new", r.token()))
}

// awaitReplica waits until a replica has listed everything.
func (r *relayed) awaitReplica(t *testing.T, d *e2e.Daemon) {
	t.Helper()
	var said string
	await.Within(t, e2e.Timeout, func() bool {
		var status int
		status, said = d.GetAt(relayMetricsPort, "/readyz")
		return status == http.StatusOK
	}, func() string {
		return "the relay on " + d.Node.Name() + " is not ready: " + said + "\n" + d.Log.String()
	})
}

// served returns how many watches of agents a replica has open.
func served(d *e2e.Daemon) int {
	_, text := d.GetAt(relayMetricsPort, "/metrics")
	return sum(text, `weavenpcrelay_watchers\{.*\}`)
}

// reading is what an agent reports about where it reads.
type reading struct{ relayed, direct, moves, lists int }

// reads returns where an agent reads, and false if it does not answer.
func reads(d *e2e.Daemon) (reading, bool) {
	status, text := d.Get("/metrics")
	return reading{relayed: sum(text, `weavenpc_relay_watches\{through="relay"\}`),
			direct: sum(text, `weavenpc_relay_watches\{through="api"\}`),
			moves:  sum(text, `weavenpc_relay_moves_total\{.*\}`), lists: sum(text, `weavenpc_relay_lists_total\{.*\}`)},
		status == http.StatusOK
}

// sum adds the values of the metrics that match.
func sum(text, pattern string) (all int) {
	for _, m := range regexp.MustCompile(`(?m)^`+pattern+` (\d+)$`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		all += n
	}
	return all
}
