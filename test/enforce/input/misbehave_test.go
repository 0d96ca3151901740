package input

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/enforce/random"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

// middleman stands between the nodes and the API server, and misbehaves.
type middleman struct {
	dir       string
	addr      string
	authority *apiserver.Authority
	cert      atomic.Pointer[tls.Certificate]
	token     atomic.Value // that it asks of clients
	mode      atomic.Pointer[misbehaviour]
	conns     sync.Map // net.Conn -> nil
}

// misbehaviour answers a request by itself, and then returns true, or changes what is passed on.
type misbehaviour func(http.ResponseWriter, **http.Request) bool

// newMiddleman listens on the API server's host.
func newMiddleman(t *testing.T, w *e2e.Cluster, c *e2e.APIServer) *middleman {
	t.Helper()
	transport, err := rest.TransportFor(c.Server.Client())
	c.Must(t, err)
	target, err := url.Parse(c.Server.URL())
	c.Must(t, err)
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Authorization") },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     log.New(io.Discard, "", 0)} // what is closed on purpose is not worth a line
	m := &middleman{}
	m.dir, err = os.MkdirTemp(w.Dir(), "middleman-")
	c.Must(t, err)
	m.rotate(t)
	m.authority, err = apiserver.NewAuthority(m.dir)
	c.Must(t, err)
	m.renew(t, c)
	var listener net.Listener
	c.Must(t, c.Host.Do(func() (err error) {
		listener, err = net.Listen("tcp4", net.JoinHostPort(c.Host.Addr4().String(), "0"))
		return err
	}))
	m.addr = listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+m.token.Load().(string) {
			answer(rw, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the token is not the one of today")
			return
		}
		if misbehave := m.mode.Load(); misbehave != nil && (*misbehave)(rw, &r) {
			return
		}
		defer func() { _ = recover() }() // the proxy panics to break an answer off
		proxy.ServeHTTP(rw, r)
	}), ReadHeaderTimeout: e2e.Timeout,
		ConnState: func(conn net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				m.conns.Store(conn, nil)
			case http.StateClosed:
				m.conns.Delete(conn)
			}
		}}
	server.TLSConfig = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
		error) {
		return m.cert.Load(), nil
	}}
	go func() { _ = server.ServeTLS(listener, "", "") }() // until it is closed
	t.Cleanup(func() { server.Close() })
	return m
}

// renew makes another certificate the server's.
func (m *middleman) renew(t *testing.T, c *e2e.APIServer) {
	t.Helper()
	c.Must(t, m.authority.WriteServer(c.Host.Addrs()))
	cert, err := tls.LoadX509KeyPair(filepath.Join(m.dir, apiserver.ServerCertFile),
		filepath.Join(m.dir, apiserver.ServerKeyFile))
	c.Must(t, err)
	m.cert.Store(&cert)
}

// rotate makes another token the valid one, and writes it to where weave-npc reads it, as a kubelet does.
func (m *middleman) rotate(t *testing.T) {
	t.Helper()
	token := uuid.NewString()
	e2e.WriteFile(t, m.tokenFile(), token)
	m.token.Store(token)
}

func (m *middleman) tokenFile() string { return filepath.Join(m.dir, "token") }

// kubeconfig returns the path of a file that leads to the middleman.
func (m *middleman) kubeconfig(t *testing.T) string {
	t.Helper()
	const name = "middleman"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + m.addr, CertificateAuthority: filepath.Join(m.dir,
		apiserver.AuthorityFile)}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: m.tokenFile()}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	path := filepath.Join(m.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// answer writes an object in the form of the API.
func answer(rw http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	fmt.Fprintf(rw, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q, "message": %q}`, code, reason, message)
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// TestS64_TheAPIServerMisbehaves changes the cluster while a proxy between the nodes and the API server closes, delays
// and refuses.
func TestS64_TheAPIServerMisbehaves(t *testing.T) {
	t.Parallel()
	w, c := e2e.NewAPIServer(t, lab.NFT)
	w.Timeout = 4 * e2e.Timeout // client-go waits up to 30 s between two tries, and may need some
	c.AssignRanges(t, w)
	c.Write(t, w.Objects(e2e.Base()))
	m := newMiddleman(t, w, c)
	for _, n := range w.Nodes() {
		d := e2e.StartDaemon(t, n, "--kubeconfig", m.kubeconfig(t), "--iptables-backend", string(w.Backend))
		d.Log.Expect("watch is broken|watch error|API server does not answer|fail-closed filter closed for long")
		w.Daemons = append(w.Daemons, d)
	}
	for _, d := range w.Daemons {
		d.AwaitReady(t)
	}
	g, seed, _ := random.New(t, w, 0)
	for _, c := range []struct {
		name      string
		misbehave func() misbehaviour
	}{
		{"watches_are_closed_every_second", func() misbehaviour {
			return func(_ http.ResponseWriter, r **http.Request) bool {
				if isWatch(*r) {
					ctx, cancel := context.WithTimeout((*r).Context(), time.Second)
					context.AfterFunc(ctx, cancel)
					*r = (*r).WithContext(ctx)
				}
				return false
			}
		}},
		{"versions_are_too_old", func() misbehaviour {
			var n atomic.Int64
			return func(rw http.ResponseWriter, r **http.Request) bool {
				if isWatch(*r) && (*r).URL.Query().Get("resourceVersion") != "" && n.Add(1)%3 != 0 {
					answer(rw, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
					return true
				}
				// Open connections are closed, so that the version is asked for again.
				ctx, cancel := context.WithTimeout((*r).Context(), 2*time.Second)
				context.AfterFunc(ctx, cancel)
				*r = (*r).WithContext(ctx)
				return false
			}
		}},
		{"every_answer_takes_two_seconds", func() misbehaviour {
			return func(_ http.ResponseWriter, r **http.Request) bool {
				select {
				case <-time.After(2 * time.Second):
				case <-(*r).Context().Done():
				}
				return false
			}
		}},
		{"it_is_overloaded_and_then_is_not", func() misbehaviour {
			begin := time.Now()
			return func(rw http.ResponseWriter, _ **http.Request) bool {
				if time.Since(begin) > 4*time.Second {
					return false
				}
				rw.Header().Set("Retry-After", "1")
				answer(rw, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "come back later")
				return true
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			misbehave := c.misbehave()
			m.mode.Store(&misbehave)
			defer m.mode.Store(nil)
			m.reset()
			for i := range 2 {
				g.Begin()
				// While a watch is broken for long, addresses that no pod has are closed: no pod ends here.
				g.Edit()
				g.Relabel("shop/db")
				w.Apply(t, g.Objects)
				if random.Compare(t, w, g.Objects); t.Failed() {
					t.Fatalf("seed %d, step %d: %q", seed, i, g.Did)
				}
			}
			for _, d := range w.Daemons {
				d.CheckLog(t)
			}
		})
	}
	for name, change := range map[string]func(){
		"the_token_is_another":       func() { m.rotate(t) },
		"the_certificate_is_another": func() { m.renew(t, c) },
	} {
		t.Run(name, func(t *testing.T) {
			change()
			m.reset()
			e2e.Do(e2e.Policy("shop/p0", `{podSelector: {}}`), e2e.Pod("shop/db", e2e.Labelled("app="+name),
				e2e.Phase(corev1.PodRunning)))(w, g.Objects)
			w.Source.Write(t, g.Objects)
			for _, d := range w.Daemons {
				await.Within(t, w.Timeout, func() bool { return d.Running() && follows(t, w, g.Objects) },
					func() string { return "it is not taken\n" + w.State() })
			}
			random.Compare(t, w, g.Objects)
		})
	}
}

// reset closes every connection: the nodes have to connect again.
func (m *middleman) reset() {
	m.conns.Range(func(conn, _ any) bool {
		_ = conn.(net.Conn).Close() // one that is closed already is as good
		return true
	})
}

// follows reports whether every verdict is what the reference model expects now.
func follows(t *testing.T, w *e2e.Cluster, o *e2e.Objects) bool {
	t.Helper()
	questions, _ := random.EvaluatedQuestions(t, w, o)
	seen, err := w.Ask(t.Context(), questions, e2e.Promptly())
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range questions {
		if seen[i].Diff(q.Want) != "" {
			return false
		}
	}
	return true
}
