package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// deployment is one whose pod has an address if it is asked for.
const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}, spec: {selector: {matchLabels: {a: b}},
  template: {metadata: {labels: {a: b}}}}}
`

// TestWithWorkloads shows from where manifests are read, and that workloads become pods only if they are asked for.
func TestWithWorkloads(t *testing.T) {
	const both = "10.254.0.1 fdfe:dcba:9876::1"
	const policy = "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p}, spec: {podSelector: {}, "
	for name, c := range map[string]struct {
		more, want string
		notes      int
	}{
		"alone":        {"", "10.254.0.1", 0},
		"ingress_IPv4": {policy + "ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}}", "10.254.0.1", 1},
		"ingress_IPv6": {policy + "ingress: [{from: [{ipBlock: {cidr: '::/0'}}]}]}}", both, 0},
		"egress_IPv6":  {policy + "egress: [{to: [{ipBlock: {cidr: '::/0'}}]}]}}", both, 0},
		"node_IPv6":    {"---\n{apiVersion: v1, kind: Node, metadata: {name: node1}, spec: {podCIDR: 'fd00::/64', podCIDRs: ['fd00::/64']}}", both, 0},
		"cluster_IPv6": {"---\n{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: p}, spec: {tier: Admin, priority: 1, " +
			"subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: ['fd00::/64']}]}]}}", both, 1},
		"mentioned": {"---\n{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 10.254.0.1}}", "10.254.0.2", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "m.yaml")
			if err := os.WriteFile(file, []byte(deployment+c.more), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{dir, file, StandardInput} {
				m, err := Open(path, strings.NewReader(deployment+c.more))
				if err != nil {
					t.Fatal(err)
				}
				enforced, err := m.Objects()
				if err != nil || len(enforced.Pods) > 0 {
					t.Errorf("%s: %v, %v", path, enforced.Pods, err)
				}
				for range 2 {
					o, err := m.WithWorkloads()
					if err != nil || len(o.Pods) != 1 || o.Pods[0].Name != "web" || o.Namespaces[len(o.Namespaces)-1].Name != "shop" || len(o.Notes) != c.notes {
						t.Fatalf("%s: %+v, %v", path, o, err)
					}
					var got []string
					for _, ip := range o.Pods[0].Status.PodIPs {
						got = append(got, ip.IP)
					}
					if got := strings.Join(got, " "); got != c.want {
						t.Errorf("%s: %s, not %s", path, got, c.want)
					}
				}
				if n, err := m.Network(); err != nil || len(n.Services) != strings.Count(c.more, "Service") {
					t.Errorf("%s: %v, %v", path, n.Services, err)
				}
			}
		})
	}
}

// TestOpenRefuses what cannot be read, in one line.
func TestOpenRefuses(t *testing.T) {
	if _, err := Open(StandardInput, nil); err == nil || err.Error() != "standard input is read for another flag already" {
		t.Error(err)
	}
	if _, err := Open(StandardInput, strings.NewReader(" \n")); err == nil || err.Error() != "standard input is empty" {
		t.Error(err)
	}
	if _, err := Open(StandardInput, strings.NewReader(strings.Repeat("#", manifest.MaxSize+1))); err == nil ||
		err.Error() != "-: has more than 16777216 bytes; split it" {
		t.Error(err)
	}
	m, err := Open(StandardInput, strings.NewReader("a: b\n---\nkind: [\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.WithWorkloads(); err == nil || !strings.HasPrefix(err.Error(), "-:1: has no apiVersion or no kind\n-:3: ") {
		t.Error(err)
	}
	empty := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err = Open(empty, nil); err != nil {
		t.Fatal(err)
	}
	if o, err := m.WithWorkloads(); err != nil || len(o.Pods) > 0 {
		t.Errorf("of an empty file: %v, %v", o, err)
	}
}
