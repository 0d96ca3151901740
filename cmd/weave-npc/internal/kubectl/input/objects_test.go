package input

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// TestReadPartly shows which namespaces are read where the user may not read all: those that are asked about, if
// answers can do without the others.
func TestReadPartly(t *testing.T) {
	c := ObjectFlags{Access: apiclient.Access{Kubeconfig: filepath.Join(t.TempDir(), "none")}}
	if got := c.namespaces(); len(got) > 0 {
		t.Errorf("without being asked to, it reads %v", got)
	}
	c.ReadPartly("shop/web", "pay/Deployment/db", "svc/db.ops", "svc/dev/db", "svc/web.prod.svc.cluster.local", "10.32.1.2", "fd32::2", "", "test", "shop",
		"No_Name/x", "../etc")
	if got := strings.Join(c.namespaces(), " "); got != "dev ops pay prod shop test" {
		t.Errorf("it reads %s", got)
	}
}

// TestNamed has names as kubectl has them, and those with a namespace.
func TestNamed(t *testing.T) {
	for _, c := range []struct{ end, without, within string }{
		{"pod/web", "default/web", "shop/web"},
		{"po/web", "default/web", "shop/web"},
		{"pods/web", "default/web", "shop/web"},
		{"svc/redis-cart", "svc/redis-cart.default", "svc/redis-cart.shop"},
		{"services/db", "svc/db.default", "svc/db.shop"},
		{"service/db.pay", "svc/db.pay", "svc/db.pay"},
		{"svc/pay/db", "svc/db.pay", "svc/db.pay"},
		{"pay/svc/db", "svc/db.pay", "svc/db.pay"},
		{"svc/db.pay.svc.cluster.local", "svc/db.pay", "svc/db.pay"},
		{"pay/deploy/db", "pay/Deployment/db", "pay/Deployment/db"},
		{"jobs/deploy/db", "jobs/Deployment/db", "jobs/Deployment/db"},
		{"pay/pod/db", "pay/db", "pay/db"},
		{"deploy/web", "default/Deployment/web", "shop/Deployment/web"},
		{"deployments.apps/web", "default/Deployment/web", "shop/Deployment/web"},
		{"StatefulSet/db", "default/StatefulSet/db", "shop/StatefulSet/db"},
		{"cj/clean", "default/CronJob/clean", "shop/CronJob/clean"},
		{"web", "web", "shop/web"},
		{"pay/db", "pay/db", "pay/db"},
		{"pay/Deployment/db", "pay/Deployment/db", "pay/Deployment/db"},
		{"10.32.0.1", "10.32.0.1", "10.32.0.1"},
		{"", "", ""},
		{"deploy/", "deploy/", "deploy/"},
	} {
		for namespace, want := range map[string]string{"": c.without, "shop": c.within} {
			o := ObjectFlags{}
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.RegisterAll(f)
			if err := f.Parse([]string{"-f", "manifests", "-n", namespace}); err != nil {
				t.Fatal(err)
			}
			if got := o.Named(c.end); got != want {
				t.Errorf("%s in %q: %s, want %s", c.end, namespace, got, want)
			}
		}
	}
}
