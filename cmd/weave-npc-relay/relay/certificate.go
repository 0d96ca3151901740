package relay

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pkg/errors"
)

// look is how often the certificate's files are looked at, at most.
const look = time.Second

// certificate is the server's certificate, read again when its files change. Kubernetes replaces the files of a Secret
// without a restart.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex // guards the fields below
	current *tls.Certificate
	read    [2]time.Time // when the files that were read were changed
	looked  time.Time
}

func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	changed, err := c.changed()
	if err != nil {
		return nil, err
	}
	return c, c.load(changed)
}

func (c *certificate) changed() ([2]time.Time, error) {
	var times [2]time.Time
	for i, file := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return times, errors.Wrap(err, "looking at the relay's certificate")
		}
		times[i] = info.ModTime()
	}
	return times, nil
}

func (c *certificate) load(changed [2]time.Time) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return errors.Wrapf(err, "reading the relay's certificate from %s and %s", c.certFile, c.keyFile)
	}
	c.current, c.read = &pair, changed
	return nil
}

// get implements tls.Config.GetCertificate. Files that cannot be read, or that do not belong together yet, leave what
// was read before.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < look {
		return c.current, nil
	}
	c.looked = time.Now()
	changed, err := c.changed()
	if err == nil && changed != c.read {
		err = c.load(changed)
		if err == nil {
			c.log.Info("the certificate was read again", "expires", c.current.Leaf.NotAfter)
		}
	}
	if err != nil {
		c.log.Warn("the certificate cannot be read again, the one before is used", "err", err)
	}
	return c.current, nil
}
