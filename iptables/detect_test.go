package iptables

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// installation makes a directory with only the given iptables programs, for both families. "iptables=nft" is a plain
// iptables of the nft backend.
func installation(t *testing.T, names ...string) programDirs {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name, backend, plain := strings.Cut(name, "=")
		if !plain {
			backend = strings.TrimPrefix(name, "iptables-")
		}
		real, ok := searchPath().find("iptables-" + backend)
		if !ok {
			t.Fatalf("iptables-%s is not installed; both backends are needed", backend)
		}
		real, err := filepath.EvalSymlinks(real)
		if err != nil {
			t.Fatal(err)
		}
		for _, prefix := range []string{"ip", "ip6"} {
			for _, suffix := range []string{"", "-save", "-restore"} {
				link := filepath.Join(dir, prefix+strings.TrimPrefix(name, "ip")+suffix)
				if err := os.Symlink(real, link); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return programDirs{dir}
}

func TestDetect(t *testing.T) {
	const (
		hint   = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"
		canary = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
		one    = "*nat\n-A POSTROUTING -j ACCEPT\nCOMMIT\n"
		three  = "*filter\n-A FORWARD -j ACCEPT\n-A FORWARD -j ACCEPT\n-A INPUT -j ACCEPT\nCOMMIT\n"
		other  = "*mangle\n:MY-KUBE-IPTABLES-HINT - [0:0]\n" +
			"-A MY-KUBE-IPTABLES-HINT -m comment --comment \"KUBE-IPTABLES-HINT\"\nCOMMIT\n"
	)
	all := []string{"iptables-nft", "iptables-legacy", "iptables=nft"}
	plainLegacy := []string{"iptables-nft", "iptables-legacy", "iptables=legacy"}
	mixed := []string{"iptables-nft", "iptables=legacy"}
	tests := map[string]struct {
		installed           []string
		nft4, nft6          string
		legacy4, legacy6    string
		override            string
		want                Backend
		reason, errContains string
	}{
		"nothing, plain is nft":     {installed: all, want: NFT, reason: "plain"},
		"nothing, plain is legacy":  {installed: plainLegacy, want: Legacy, reason: "plain"},
		"nothing, no plain":         {installed: []string{"iptables-nft", "iptables-legacy"}, want: NFT, reason: "0 rules"},
		"hint in nft":               {installed: all, nft4: hint, legacy4: three, want: NFT, reason: "KUBE-IPTABLES-HINT"},
		"hint in legacy":            {installed: all, legacy4: hint, nft4: three, want: Legacy, reason: "KUBE-IPTABLES-HINT"},
		"hint in IPv6 alone":        {installed: all, legacy6: hint, nft4: three, want: Legacy, reason: "IPv6"},
		"old kubelet, nft":          {installed: all, nft4: canary, legacy4: three, want: NFT, reason: "CANARY"},
		"old kubelet, legacy":       {installed: all, legacy4: canary, nft4: three, want: Legacy, reason: "CANARY"},
		"resembles a hint":          {installed: all, nft4: other, legacy4: three, want: Legacy, reason: "3 rules, nft 1"},
		"more rules in nft":         {installed: all, nft4: three, legacy4: one, want: NFT, reason: "3 rules, legacy 1"},
		"more rules in legacy":      {installed: all, nft4: one, legacy4: three, want: Legacy, reason: "3 rules, nft 1"},
		"IPv6 counts":               {installed: all, nft4: one, legacy6: three, want: Legacy, reason: "3 rules, nft 1"},
		"as many in both":           {installed: all, nft4: one, legacy6: one, want: NFT, reason: "plain"},
		"only nft programs":         {installed: []string{"iptables-nft"}, legacy4: hint, want: NFT, reason: "only"},
		"only legacy programs":      {installed: []string{"iptables-legacy"}, nft4: hint, want: Legacy, reason: "only"},
		"only a plain nft":          {installed: []string{"iptables=nft"}, want: NFT, reason: "only"},
		"only a plain legacy":       {installed: []string{"iptables=legacy"}, want: Legacy, reason: "only"},
		"plain legacy and nft":      {installed: mixed, legacy4: three, want: Legacy, reason: "3 rules"},
		"no programs":               {errContains: "install"},
		"asked for":                 {installed: all, nft4: hint, override: "legacy", want: Legacy, reason: "asked"},
		"asked for what is lacking": {installed: []string{"iptables-legacy"}, override: "nft", errContains: "install"},
		"asked for nonsense":        {installed: all, override: "ipfw", errContains: `"ipfw"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sandbox.Thread(t)
			fill := func(family Family, backend Backend, input string) {
				if input == "" {
					return
				}
				table, err := New(family, backend)
				if err != nil {
					t.Fatal(err)
				}
				table.restore(t, input)
			}
			fill(IPv4, NFT, tt.nft4)
			fill(IPv6, NFT, tt.nft6)
			fill(IPv4, Legacy, tt.legacy4)
			fill(IPv6, Legacy, tt.legacy6)
			tablesBefore := legacyTablesOf(t)

			got, reason, err := installation(t, tt.installed...).detect(t.Context(), tt.override)
			t.Logf("%q, %q, %v", got, reason, err)
			if tt.errContains != "" {
				if err == nil || !strings.Contains(err.Error(), tt.errContains) {
					t.Errorf("error %v, want one with %q", err, tt.errContains)
				}
				return
			}
			if err != nil || got != tt.want || !strings.Contains(reason, tt.reason) {
				t.Errorf("got %q because %q, error %v; want %q because %q", got, reason, err, tt.want, tt.reason)
			}
			if tables := legacyTablesOf(t); tables != tablesBefore {
				t.Errorf("looking changed the legacy tables from %q to %q", tablesBefore, tables)
			}
			for _, family := range []Family{IPv4, IPv6} {
				if _, err := installation(t, tt.installed...).open(family, got); err != nil {
					t.Errorf("what was detected cannot be opened: %v", err)
				}
			}
		})
	}
}

// TestDetectWithABackendThatCannotBeRead: the other backend is selected.
func TestDetectWithABackendThatCannotBeRead(t *testing.T) {
	for broken, want := range map[Backend]Backend{NFT: Legacy, Legacy: NFT} {
		t.Run(string(broken), func(t *testing.T) {
			sandbox.Thread(t)
			for _, family := range []Family{IPv4, IPv6} { // else nothing of the legacy backend is read
				table, err := New(family, Legacy)
				if err != nil {
					t.Fatal(err)
				}
				table.restore(t, "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n")
			}
			dirs := installation(t, "iptables-"+string(want))
			for _, name := range []string{"iptables-", "ip6tables-"} {
				for _, suffix := range []string{"", "-save", "-restore"} {
					script := filepath.Join(dirs[0], name+string(broken)+suffix)
					if err := os.WriteFile(script, []byte("#!/bin/sh\necho broken >&2\nexit 1\n"), 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, reason, err := dirs.detect(t.Context(), "")
			if err != nil || got != want || !strings.Contains(reason, string(broken)+" cannot be read") {
				t.Errorf("got %q because %q, error %v; want %q", got, reason, err, want)
			}
		})
	}
}

// legacyTablesOf lists the legacy tables of both families.
func legacyTablesOf(t *testing.T) string {
	t.Helper()
	v4, err := legacyTables(IPv4)
	if err != nil {
		t.Fatal(err)
	}
	v6, err := legacyTables(IPv6)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(v4, " ") + "; " + strings.Join(v6, " ")
}
