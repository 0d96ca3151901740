package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// made returns the objects that a configuration makes.
func made(t *testing.T, c certificate) (corev1.ConfigMap, corev1.Secret) {
	t.Helper()
	text, err := c.objects()
	if err != nil {
		t.Fatal(err)
	}
	parts := bytes.Split(append([]byte("\n"), text...), []byte("\n---\n"))
	var trust corev1.ConfigMap
	var secret corev1.Secret
	if len(parts) != 3 || yaml.UnmarshalStrict(parts[1], &trust) != nil || yaml.UnmarshalStrict(parts[2], &secret) != nil {
		t.Fatalf("made %s", text)
	}
	return trust, secret
}

// accepts returns the error with which an agent refuses a relay.
func accepts(t *testing.T, trust corev1.ConfigMap, secret corev1.Secret, name string) error {
	t.Helper()
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(trust.Data["ca.crt"])) {
		t.Fatal("no authority")
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool})
	return err
}

func TestAgentsAcceptTheCertificate(t *testing.T) {
	config := certificate{namespace: "kube-system", service: "weave-npc-relay", valid: 24 * time.Hour}
	trust, secret := made(t, config)
	if trust.Name != "weave-npc-relay-ca" || secret.Name != "weave-npc-relay-tls" || secret.Namespace != "kube-system" || secret.Type != corev1.SecretTypeTLS {
		t.Errorf("made %s and %s", trust.Name, secret.Name)
	}
	if err := accepts(t, trust, secret, "weave-npc-relay.kube-system.svc"); err != nil {
		t.Error(err)
	}
	if err := accepts(t, trust, secret, "weave-npc-relay.other.svc"); err == nil {
		t.Error("it is accepted for another name")
	}
	config.trusted = []byte(trust.Data["ca.crt"])
	both, next := made(t, config)
	for _, s := range []corev1.Secret{secret, next} {
		if err := accepts(t, both, s, "weave-npc-relay.kube-system.svc"); err != nil {
			t.Errorf("while both are trusted: %v", err)
		}
	}
	if err := accepts(t, trust, next, "weave-npc-relay.kube-system.svc"); err == nil {
		t.Error("two runs have one authority")
	}
	config.trusted = secret.Data["tls.key"]
	if _, err := config.objects(); err == nil || !strings.Contains(err.Error(), "want certificates") {
		t.Errorf("a key is passed on to agents: %v", err)
	}
}
