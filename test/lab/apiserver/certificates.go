package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
)

// Files that WriteCertificates writes.
const (
	AuthorityFile  = "ca.crt"
	ServerCertFile = "server.crt"
	ServerKeyFile  = "server.key"
)

// WriteCertificates writes an authority's certificate, and a server's certificate and key that it signed, to dir. The
// key also signs service account tokens.
func WriteCertificates(dir string, addrs []netip.Addr) error {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return errors.Wrap(err, "making a key")
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return errors.Wrap(err, "making a key")
	}
	authority := certificate(1, "lab authority")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	server := certificate(2, "kube-apiserver")
	server.KeyUsage = x509.KeyUsageDigitalSignature
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, addr := range addrs {
		server.IPAddresses = append(server.IPAddresses, net.IP(addr.AsSlice()))
	}
	authorityCert, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return errors.Wrap(err, "signing the authority's certificate")
	}
	serverCert, err := x509.CreateCertificate(rand.Reader, server, authority, serverKey.Public(), authorityKey)
	if err != nil {
		return errors.Wrap(err, "signing the server's certificate")
	}
	key, err := x509.MarshalECPrivateKey(serverKey)
	if err != nil {
		return errors.Wrap(err, "encoding the server's key")
	}
	for name, block := range map[string]*pem.Block{
		AuthorityFile:  {Type: "CERTIFICATE", Bytes: authorityCert},
		ServerCertFile: {Type: "CERTIFICATE", Bytes: serverCert},
		ServerKeyFile:  {Type: "EC PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return errors.Wrapf(err, "writing %s", name)
		}
	}
	return nil
}

func certificate(number int64, name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(number),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}
