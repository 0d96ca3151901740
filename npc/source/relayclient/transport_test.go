package relayclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// authority makes certificates, as a file and for a server of some name.
func authority(t *testing.T, file, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestARelayIsKnownByItsCertificate shows who is asked, and with what: only a server with the name of the relay's
// Service and a certificate of the authority, and with the token that the file has at the time.
func TestARelayIsKnownByItsCertificate(t *testing.T) {
	const right = "weave-npc-relay.kube-system.svc"
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	for _, test := range []struct {
		name   string
		server string // of its certificate
		repair func()
		err    string
	}{
		{"right", right, func() {}, ""},
		{"of_another_name", "other.kube-system.svc", func() {}, "not " + right},
		{"of_another_authority", right, func() { authority(t, ca, right) }, "certificate signed by unknown authority"},
		{"no_certificates", right, func() { write(t, ca, "") }, "has no certificates by which the relay could be known"},
		{"no_file", right, func() { _ = os.Remove(ca) }, "reading the certificates by which the relay is known"},
		{"token_refused", right, func() { write(t, token, "bad") }, "asked for the client to provide credentials"},
		{"no_token", right, func() { _ = os.Remove(token) }, "reading the token for the relay"},
	} {
		t.Run(test.name, func(t *testing.T) {
			write(t, token, "secret\n")
			asked, protocol := "", ""
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked, protocol = r.URL.Path, r.Proto
				w.Header().Set("Content-Type", "application/json")
				if r.Header.Get("Authorization") != "Bearer secret" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				_, _ = fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"web"}}]}`)
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{authority(t, ca, test.server)}, MinVersion: tls.VersionTLS13}
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			test.repair()
			r, err := New(Config{Address: "kube-system/weave-npc-relay", CA: ca, Token: token, Version: "test", Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			client, _, err := r.Client()
			if err != nil {
				t.Fatal(err)
			}
			list, err := client.CoreV1().Pods("").List(at(context.Background(), server.Listener.Addr().String()), metav1.ListOptions{})
			switch {
			case test.err == "" && (err != nil || len(list.Items) != 1 || asked != "/api/v1/pods" || protocol != "HTTP/2.0"):
				t.Errorf("%v, %v, asked for %q by %s", list, err, asked, protocol)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("error %v, want %q", err, test.err)
			}
			if _, err := client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "goes to no replica") {
				t.Errorf("a request without a replica: %v", err)
			}
		})
	}
}

// TestAddresses are read as --relay has them.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"kube-system/weave-npc-relay": "weave-npc-relay.kube-system.svc []",
		"192.0.2.1:6785":              " [192.0.2.1:6785]",
		"a:1, [2001:db8::1]:2,a:1":    " [a:1 [2001:db8::1]:2]",
		"":                            "", "a": "", "a:0": "", "a:70000": "", ":1": "", "a:1,": "", "a/b/c": "", "A/b": "", "https://a:1": "", "a/": "", "a b:1": "",
	} {
		a, err := parse(text)
		if got := fmt.Sprint(a.serverName(), " ", a.hosts); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
		if err != nil && (!strings.Contains(err.Error(), "is neither NAMESPACE/SERVICE nor HOST:PORT") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
