package relay_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/auth"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/relay"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/serve"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

const audience = "weave-npc-relay"

func TestMain(m *testing.M) {
	if where := os.Getenv(loneVariable); where != "" {
		os.Exit(runLone(where))
	}
	serve.AllowStreamingLists()
	os.Exit(lab.Main(m))
}

// harness is a real API server with relays before it.
type harness struct {
	t      testing.TB
	server *apiserver.Server
	config *rest.Config // of an admin
	client kubernetes.Interface
	// readyAfter is how long after their lists the relays are ready that are started from now on.
	readyAfter time.Duration
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	return harnessOn(t, apiserver.Alone(t))
}

// harnessOn returns a harness on a running API server.
func harnessOn(t testing.TB, server *apiserver.Server) *harness {
	t.Helper()
	w := &harness{t: t, server: server, config: server.Client()}
	w.client = clientFor(t, w.config)
	for _, name := range []string{"kube-system", "shop"} {
		if _, err := w.client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			continue
		}
		_, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.must(err)
	}
	for _, name := range []string{"weave-npc", "other"} {
		_, err := w.client.CoreV1().ServiceAccounts("kube-system").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		w.must(err)
	}
	return w
}

func (w *harness) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// token returns a new token of a service account.
func (w *harness) token(account, audience string) string {
	w.t.Helper()
	r, err := w.client.CoreV1().ServiceAccounts("kube-system").CreateToken(context.Background(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}, metav1.CreateOptions{})
	w.must(err)
	return r.Status.Token
}

// running is a relay that runs in this process.
type running struct {
	addr, metrics, dir string
	stop               func()
}

// start starts a relay that reads from an API server as config says, at an address, or any if it is empty.
func (w *harness) start(config *rest.Config, addr string) *running {
	w.t.Helper()
	dir := w.t.TempDir()
	writeCertificate(w.t, dir)
	return w.startWith(config, addr, dir)
}

// again restarts a stopped relay at its address and with its certificate.
func (w *harness) again(r *running, config *rest.Config) *running {
	w.t.Helper()
	return w.startWith(config, r.addr, r.dir)
}

func (w *harness) startWith(config *rest.Config, addr, dir string) *running {
	w.t.Helper()
	r := &running{dir: dir}
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil))
	made, err := relay.New(relay.Config{API: config, CertFile: filepath.Join(r.dir, apiserver.ServerCertFile),
		KeyFile: filepath.Join(r.dir, apiserver.ServerKeyFile), Tokens: auth.Config{Audience: audience, Accounts: []string{"kube-system:weave-npc"}},
		ReadyAfter: w.readyAfter, AskKinds: time.Second}, log)
	w.must(err)
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	agents, err := net.Listen("tcp", addr)
	w.must(err)
	metrics, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	r.addr, r.metrics = agents.Addr().String(), metrics.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := made.Run(ctx, agents, metrics); err != nil {
			w.t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		ended.Wait()
	})
	w.t.Cleanup(r.stop)
	w.eventually("the relay is ready", func() bool { return r.get(w.t, "/readyz") == "ok\n" })
	return r
}

func writeCertificate(t testing.TB, dir string) {
	t.Helper()
	authority, err := apiserver.NewAuthority(dir)
	if err == nil {
		err = authority.WriteServer([]netip.Addr{netip.MustParseAddr("127.0.0.1")})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// get returns what the metrics' address answers.
func (r *running) get(t testing.TB, path string) string {
	t.Helper()
	answer, err := http.Get("http://" + r.metrics + path) //nolint:noctx // ends with the relay
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// agent returns the configuration of an agent that has a token.
func (r *running) agent(token string) *rest.Config {
	return &rest.Config{Host: "https://" + r.addr, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(r.dir, apiserver.AuthorityFile)},
		ContentConfig:   rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
}

// http returns a client that trusts the relay.
func (r *running) http(t testing.TB) *http.Client {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, apiserver.AuthorityFile))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}}
}

func (w *harness) eventually(what string, done func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(90 * time.Second) // the machine may be busy
	for !done() {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within 90 seconds: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
