package input

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestReadPartly shows which namespaces are read where the user may not read all: those that are asked about, if
// answers can do without the others.
func TestReadPartly(t *testing.T) {
	c := ObjectFlags{Kubeconfig: filepath.Join(t.TempDir(), "none")}
	if got := c.namespaces(); len(got) > 0 {
		t.Errorf("without being asked to, it reads %v", got)
	}
	c.ReadPartly("shop/web", "pay/Deployment/db", "svc/db.ops", "svc/dev/db", "svc/web.prod.svc.cluster.local", "10.32.1.2", "fd32::2", "", "test", "shop",
		"No_Name/x", "../etc")
	if got := strings.Join(c.namespaces(), " "); got != "dev ops pay prod shop test" {
		t.Errorf("it reads %s", got)
	}
}
