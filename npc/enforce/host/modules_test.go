package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// withoutExtensions has iptables lack extensions, which it answers as it does a kernel without their modules: it
// refuses the rules.
func withoutExtensions(t *testing.T, names ...string) {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil || len(found) == 0 {
		t.Fatalf("the extensions of iptables are missing: %v", err)
	}
	dir := t.TempDir()
	for _, path := range found {
		base := filepath.Base(path)
		if !slices.Contains(names, base) {
			if err := os.Symlink(path, filepath.Join(dir, base)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("XTABLES_LIBDIR", dir)
}

func TestLacking(t *testing.T) {
	const essential = "; no policy is enforced until then"
	for name, c := range map[string]struct {
		without []string
		want    []string
		says    string
	}{
		"nothing": {},
		"a match": {[]string{"libxt_bpf.so"}, []string{"xt_bpf"}, "the kernel lacks xt_bpf: " +
			"load what is missing on the node (modprobe -a xt_bpf), " +
			"or install the package of its modules (kernel-modules-extra on RHEL 10)"},
		"a target and a match": {[]string{"libxt_NFLOG.so", "libxt_hashlimit.so"},
			[]string{"xt_NFLOG", "xt_hashlimit"}, "modprobe -a xt_NFLOG xt_hashlimit"},
		"what policies need":  {[]string{"libxt_set.so"}, []string{"xt_set"}, essential},
		"what all rules need": {[]string{"libxt_comment.so"}, nil, essential},
	} {
		for _, b := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
			t.Run(name+"/"+string(b), func(t *testing.T) {
				newNetwork(t)
				withoutExtensions(t, c.without...)
				l, err := Lacking(t.Context(), b, npc.Families[:])
				if err != nil {
					t.Fatal(err)
				}
				if name == "what all rules need" {
					c.want = ruleModules(b)
				}
				if diff := cmp.Diff(c.want, l.Modules); diff != "" {
					t.Errorf("modules that are missing (-want +got):\n%s", diff)
				}
				if says := l.String(); !strings.Contains(says, c.says) || c.says == "" && says != "" {
					t.Errorf("it says %q", says)
				}
				if want := c.says != essential; l.Enforces != want {
					t.Errorf("policies can be enforced: %v, want %v", l.Enforces, want)
				}
				leavesNothing(t, b)
			})
		}
	}
}

// leavesNothing checks that the kernel has neither sets nor chains of weave-npc.
func leavesNothing(t *testing.T, b iptables.Backend) {
	t.Helper()
	sets, err := ipset.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer sets.Close()
	headers, err := sets.Headers("")
	if err != nil || len(headers) > 0 {
		t.Errorf("sets are left: %v, %v", headers, err)
	}
	for _, f := range npc.Families {
		table, err := iptables.New(naming.IPTables(f), b)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := table.Read(t.Context(), naming.ChainPrefix)
		if err != nil || len(seen.Chains) > 0 {
			t.Errorf("%s: chains are left: %v, %v", f, seen.Chains, err)
		}
	}
}
