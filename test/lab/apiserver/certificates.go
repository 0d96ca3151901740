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

// Files that an Authority writes.
const (
	AuthorityFile  = "ca.crt"
	ServerCertFile = "server.crt"
	ServerKeyFile  = "server.key"
)

// Authority signs the certificates of servers.
type Authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	last int64 // number of the last certificate
}

// NewAuthority makes an authority that writes to dir, and writes its own certificate there.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, errors.Wrap(err, "making a key")
	}
	a := &Authority{dir: dir, key: key, cert: certificate(1, "lab authority"), last: 1}
	a.cert.IsCA, a.cert.BasicConstraintsValid = true, true
	a.cert.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	return a, a.write(AuthorityFile, a.cert, key)
}

// WriteServer writes a server's certificate, for its addresses, and its key, which also signs service account tokens.
// They take the place of those that were written before.
func (a *Authority) WriteServer(addrs []netip.Addr) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return errors.Wrap(err, "making a key")
	}
	a.last++
	server := certificate(a.last, "kube-apiserver")
	server.KeyUsage = x509.KeyUsageDigitalSignature
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, addr := range addrs {
		server.IPAddresses = append(server.IPAddresses, net.IP(addr.AsSlice()))
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return errors.Wrap(err, "encoding the server's key")
	}
	if err := a.writePEM(ServerKeyFile, "EC PRIVATE KEY", encoded); err != nil {
		return err
	}
	return a.write(ServerCertFile, server, key)
}

func (a *Authority) write(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	signed, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		return errors.Wrapf(err, "signing %s", name)
	}
	return a.writePEM(name, "CERTIFICATE", signed)
}

func (a *Authority) writePEM(name, kind string, content []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	return errors.Wrapf(os.WriteFile(filepath.Join(a.dir, name), text, 0o600), "writing %s", name)
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
