package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// certificate is what a certificate is made for. Its authority's key is forgotten: it signs one certificate. The next one
// has another authority, and agents trust both for a while.
type certificate struct {
	namespace, service string        // of the relays: agents expect the name SERVICE.NAMESPACE.svc
	valid              time.Duration // how long it is valid
	trusted            []byte        // certificates (PEM) of authorities that agents go on to trust
}

// objects returns the Secret of the relays and the ConfigMap of the agents, as YAML.
func (c certificate) objects() ([]byte, error) {
	trusted, err := authorities(c.trusted)
	if err != nil {
		return nil, err
	}
	authority, cert, key, err := pair(c.service+"."+c.namespace+".svc", c.valid)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, o := range []any{
		&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: c.service + "-ca", Namespace: c.namespace},
			Data:       map[string]string{"ca.crt": string(authority) + string(trusted)}},
		&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: c.service + "-tls", Namespace: c.namespace},
			Type:       corev1.SecretTypeTLS,
			Data:       map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key}},
	} {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, errors.Wrap(err, "writing objects")
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}

// authorities returns the certificates of a text, which must have nothing else, that have not expired.
func authorities(text []byte) ([]byte, error) {
	var out []byte
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("what agents go on to trust: want certificates (PEM) and nothing else")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.Wrap(err, "what agents go on to trust")
		}
		if time.Now().Before(cert.NotAfter) {
			out = append(out, pem.EncodeToMemory(block)...)
		}
	}
	return out, nil
}

// pair returns an authority's certificate, and a server's certificate and key for a name.
func pair(name string, valid time.Duration) (authority, cert, key []byte, err error) {
	now := time.Now().Add(-5 * time.Minute) // clocks differ
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, errors.Wrap(err, "making a key")
	}
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "authority of " + name},
		NotBefore: now, NotAfter: now.Add(valid), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign}
	if authority, err = sign(root, root, &signer.PublicKey, signer); err != nil {
		return nil, nil, nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, errors.Wrap(err, "making a key")
	}
	server := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now, NotAfter: now.Add(valid), BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if cert, err = sign(server, root, &own.PublicKey, signer); err != nil {
		return nil, nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, nil, nil, errors.Wrap(err, "encoding a key")
	}
	return authority, cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// sign returns a certificate (PEM) with a number of its own.
func sign(c, parent *x509.Certificate, public *ecdsa.PublicKey, signer *ecdsa.PrivateKey) ([]byte, error) {
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, errors.Wrap(err, "choosing a certificate's number")
	}
	c.SerialNumber = number
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, signer)
	if err != nil {
		return nil, errors.Wrap(err, "signing a certificate")
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
