package iptables

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

const foreignRules = `*filter
:FOREIGN - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -m comment --comment "say \"hello\", it's \\ all" -j FOREIGN
-A FORWARD -p udp -j DROP
-A FOREIGN -p tcp -m tcp --dport 53 -j RETURN
COMMIT
`

// ruleForms are the forms of rules that a network policy controller needs, by family. S is a hash:ip set, P a
// hash:ip,port set, N a hash:net set, L a list:set.
func ruleForms(family Family) []string {
	forms := []string{
		"-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
		"-m conntrack --ctstate INVALID -j DROP",
		"-m conntrack --ctstate NEW,UNTRACKED -j DROP",
		"-m set --match-set S src -m set --match-set N dst -j ACCEPT",
		"-m set ! --match-set L src -j ACCEPT",
		"-m set --match-set P dst,dst -j ACCEPT",
		"-p tcp -m tcp --dport 80 -j ACCEPT",
		"-p tcp -m multiport --dports 80,443,1000:2000 -j ACCEPT",
		"-p udp -m multiport --dports 1:65535 -j ACCEPT",
		"-p sctp -m sctp --dport 5 -j ACCEPT",
		"-p sctp -m sctp --dport 5:7 -j ACCEPT",
		"-p sctp -m multiport --dports 5,7:9 -j ACCEPT",
		"-m physdev --physdev-is-bridged --physdev-out vethwe-bridge -j RETURN",
		"-m physdev --physdev-is-bridged --physdev-in vethwe-bridge -j RETURN",
		"-m addrtype --dst-type LOCAL -j RETURN",
		`-j NFLOG --nflog-group 86 --nflog-prefix "WEAVE-NPC in default/web: "`,
		`-j NFLOG --nflog-group 86 --nflog-prefix "p" --nflog-size 128`,
		"-m hashlimit --hashlimit-upto 10/sec --hashlimit-burst 20 --hashlimit-mode srcip,dstip,dstport" +
			" --hashlimit-name weave-npc-in --hashlimit-htable-max 4096 --hashlimit-htable-expire 10000" +
			" -j NFLOG --nflog-group 86",
		"-g WEAVE-NPC-OTHER",
		"-j WEAVE-NPC-OTHER",
		"-o weave -i eth+ -j RETURN",
		"", // only counts
	}
	if family == IPv6 {
		return append(forms,
			"-p icmpv6 -m icmp6 --icmpv6-type 135 -m hl --hl-eq 255 -j ACCEPT",
			"-p icmpv6 -m icmp6 --icmpv6-type neighbour-solicitation -j ACCEPT",
			"-d ff00::/8 -j ACCEPT",
			"-s fe80::/10 -j DROP",
			`-m conntrack --ctstate DNAT -m bpf --bytecode "`+HairpinIPv6+`" -j ACCEPT`)
	}
	return append(forms,
		"-d 224.0.0.0/4 -j ACCEPT",
		"-d 10.0.0.5 -j ACCEPT",
		`-m conntrack --ctstate DNAT -m bpf --bytecode "`+HairpinIPv4+`" -j ACCEPT`)
}

// formRule cuts arguments into match and target.
func formRule(form string) Rule {
	for _, flag := range []string{"-j ", "-g "} {
		if i := strings.LastIndex(form, flag); i >= 0 {
			return Rule{Match: strings.TrimSpace(form[:i]), Target: form[i:], Comment: "default/web " + form}
		}
	}
	return Rule{Match: form, Comment: "counts"}
}

func TestRuleFormsOnTheKernel(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		family := "inet"
		if table.family == IPv6 {
			family = "inet6"
		}
		command(t, "ipset", "create", "S", "hash:ip", "family", family)
		command(t, "ipset", "create", "P", "hash:ip,port", "family", family)
		command(t, "ipset", "create", "N", "hash:net", "family", family)
		command(t, "ipset", "create", "L", "list:set")
		for _, form := range ruleForms(table.family) {
			chain := Chain{Name: "WEAVE-NPC", Tail: []Rule{formRule(form)}}
			table.apply(t, Update{Replace: []Chain{chain, {Name: "WEAVE-NPC-OTHER"}}})
			got := table.read(t).Chains["WEAVE-NPC"]
			if diff := cmp.Diff(chain.IDs(), got.IDs); diff != "" {
				t.Errorf("%s: ids (-want +got):\n%s", form, diff)
			}
			t.Logf("%s", got.Text)
		}
	})
}

func TestApplyAndRead(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.restore(t, foreignRules)
		before := table.foreign(t)
		update := Update{
			Replace: []Chain{
				{Name: "WEAVE-NPC-FORWARD", Tail: []Rule{{Target: "-j WEAVE-NPC"}}},
				{Name: "WEAVE-NPC", Rules: []Rule{
					{Match: "-p tcp -m tcp --dport 443", Target: "-j ACCEPT"},
					{Match: "-p udp", Target: "-j ACCEPT", Comment: "all of udp"},
				}, Tail: []Rule{
					{Match: "-p sctp", Target: "-j DROP"},
					{Target: "-g WEAVE-NPC-28-characters-long"},
				}},
				{Name: "WEAVE-NPC-28-characters-long"},
			},
			Jumps: []Jump{{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC-FORWARD", Comment: "ours"}}},
		}
		table.apply(t, update)

		seen := table.read(t)
		if len(seen.Chains) != len(update.Replace) {
			t.Errorf("%d chains of ours, want %d", len(seen.Chains), len(update.Replace))
		}
		for _, chain := range update.Replace {
			checkChain(t, table, chain)
		}
		forward := seen.Hooks["FORWARD"]
		if len(forward) != 3 || !strings.HasSuffix(forward[0], "-j WEAVE-NPC-FORWARD") {
			t.Errorf("FORWARD is %q, want our jump first and the two foreign rules", forward)
		}
		if seen.Policies["FORWARD"] != "ACCEPT" {
			t.Errorf("policies are %v", seen.Policies)
		}
		if _, ok := seen.Hooks["FOREIGN"]; ok {
			t.Error("Hooks holds a foreign chain that does not refer to ours")
		}
		if diff := cmp.Diff(before, table.foreign(t)); diff != "" {
			t.Errorf("foreign rules (-before +after):\n%s", diff)
		}
	})
}

// checkChain compares a chain, read alone and with the table, with what it should be.
func checkChain(t *testing.T, table *Table, want Chain) {
	t.Helper()
	whole := table.read(t).Chains[want.Name]
	single, exists, err := table.chain(want.Name)
	if err != nil || !exists {
		t.Fatalf("chain %s: exists %v, error %v", want.Name, exists, err)
	}
	whole.Packets = nil
	if diff := cmp.Diff(whole, single); diff != "" {
		t.Errorf("chain %s (-with the table +alone):\n%s", want.Name, diff)
	}
	if got, ids := strings.Join(whole.IDs, " "), strings.Join(want.IDs(), " "); got != ids {
		t.Errorf("chain %s has %s, want %s", want.Name, got, ids)
	}
}

func TestReplaceChangesInPlace(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		other := Chain{Name: "WEAVE-NPC-OTHER", Tail: []Rule{{Target: "-j DROP"}}}
		chain := Chain{Name: "WEAVE-NPC",
			Tail: []Rule{{Match: "-p tcp", Target: "-j ACCEPT"}, {Target: "-g WEAVE-NPC-OTHER"}}}
		jump := Jump{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC"}}
		table.apply(t, Update{Replace: []Chain{other, chain}, Jumps: []Jump{jump}})

		chain.Tail = []Rule{{Match: "-p udp", Target: "-j ACCEPT"}}
		table.apply(t, Update{Replace: []Chain{chain}})
		checkChain(t, table, chain)
		checkChain(t, table, other)
		if forward := table.read(t).Hooks["FORWARD"]; len(forward) != 1 {
			t.Errorf("FORWARD is %q, want our jump", forward)
		}
	})
}

func TestInsertGoesToTheHead(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		drop := Rule{Target: "-j DROP"}
		table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{drop}}}})
		added := []Rule{{Match: "-p udp", Target: "-j ACCEPT"}, {Match: "-p tcp", Target: "-j ACCEPT"}}
		table.apply(t, Update{Insert: map[string][]Rule{"WEAVE-NPC": added}})
		checkChain(t, table, Chain{Name: "WEAVE-NPC", Rules: added, Tail: []Rule{drop}})
	})
}

func TestJumpMovesToTheFirstPlace(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		jump := Jump{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC", Comment: "to local pods"}}
		table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC"}}, Jumps: []Jump{jump}})
		table.restore(t, foreignRules)
		table.restore(t, "*filter\n-I FORWARD 1 -p tcp -j ACCEPT\n-A FORWARD -j WEAVE-NPC\nCOMMIT\n")
		before := table.foreign(t)

		for _, ours := range Referrers(table.read(t), "WEAVE-NPC") {
			jump.Stale = append(jump.Stale, ours.Stale...)
		}
		if len(jump.Stale) != 2 {
			t.Fatalf("stale jumps are %q, want two", jump.Stale)
		}
		table.apply(t, Update{Jumps: []Jump{jump}})

		forward := table.read(t).Hooks["FORWARD"]
		if len(forward) != 4 || !strings.Contains(forward[0], jump.Rule.ID()) {
			t.Errorf("FORWARD is %q, want our jump first, once, and three foreign rules", forward)
		}
		if diff := cmp.Diff(before, table.foreign(t)); diff != "" {
			t.Errorf("foreign rules (-before +after):\n%s", diff)
		}
	})
}

func TestJumpsKeepTheirOrder(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		first, second := Rule{Target: "-j WEAVE-NPC-A"}, Rule{Target: "-j WEAVE-NPC-B"}
		table.apply(t, Update{
			Replace: []Chain{{Name: "WEAVE-NPC-A"}, {Name: "WEAVE-NPC-B"}},
			Jumps:   []Jump{{Chain: "FORWARD", Rule: first}, {Chain: "FORWARD", Rule: second}},
		})
		forward := strings.Join(table.read(t).Hooks["FORWARD"], "\n")
		if strings.Index(forward, first.ID()) >= strings.Index(forward, second.ID()) {
			t.Errorf("FORWARD is\n%s", forward)
		}
	})
}

func TestCleanupLeavesTheForeignRules(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.restore(t, foreignRules)
		before := table.saved(t)
		a := Chain{Name: "WEAVE-NPC", Tail: []Rule{{Match: "-p tcp", Target: "-g WEAVE-NPC-EGRESS"}}}
		b := Chain{Name: "WEAVE-NPC-EGRESS", Tail: []Rule{{Target: "-j DROP"}}}
		table.apply(t, Update{Replace: []Chain{a, b}, Jumps: []Jump{
			{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC"}},
			{Chain: "INPUT", Rule: Rule{Target: "-j WEAVE-NPC-EGRESS"}},
			{Chain: "FOREIGN", Rule: Rule{Target: "-g WEAVE-NPC-EGRESS"}},
		}})

		table.apply(t, Update{Jumps: Referrers(table.read(t), "WEAVE-NPC"), Delete: []string{a.Name, b.Name}})
		if diff := cmp.Diff(before, table.saved(t)); diff != "" {
			t.Errorf("all rules (-before +after):\n%s", diff)
		}
	})
}

func TestDeleteWithWhatRefersToIt(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		chain := Chain{Name: "WEAVE-NPC", Tail: []Rule{{Target: "-g WEAVE-NPC-I-x"}}}
		gone := Chain{Name: "WEAVE-NPC-I-x", Rules: []Rule{{Target: "-j WEAVE-NPC-I-y"}}}
		table.apply(t, Update{Replace: []Chain{chain, gone, {Name: "WEAVE-NPC-I-y"}}})

		chain.Tail = nil
		table.apply(t, Update{Replace: []Chain{chain}, Delete: []string{"WEAVE-NPC-I-y", "WEAVE-NPC-I-x"}})
		checkChain(t, table, chain)
		if seen := table.read(t); len(seen.Chains) != 1 {
			t.Errorf("chains are %v, want WEAVE-NPC alone", seen.Chains)
		}
		if _, exists, err := table.chain("WEAVE-NPC-I-x"); exists || err != nil {
			t.Errorf("WEAVE-NPC-I-x: exists %v, error %v", exists, err)
		}
	})
}

func TestHostileComments(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.restore(t, foreignRules)
		before := table.foreign(t)
		var rules []Rule
		for _, comment := range []string{
			"\"\n-A FORWARD -j ACCEPT\n", `\`, `\"`, "'", "`reboot`", "$(reboot)", "\x00\xff", "# no", "COMMIT\nCOMMIT",
			strings.Repeat("ü", 300), strings.Repeat(`"`, 300), "-j DROP", "--comment x", " ", "*nat", "a\r\nb",
		} {
			rules = append(rules, Rule{Match: "-p tcp", Target: "-j ACCEPT", Comment: comment})
		}
		chain := Chain{Name: "WEAVE-NPC", Rules: rules}
		table.apply(t, Update{Replace: []Chain{chain}})
		checkChain(t, table, chain)
		if diff := cmp.Diff(before, table.foreign(t)); diff != "" {
			t.Errorf("foreign rules (-before +after):\n%s", diff)
		}
	})
}

func TestUnknownRuleInOurChainShows(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{{Target: "-j DROP"}}}}})
		table.restore(t, "*filter\n-I WEAVE-NPC -p udp -j ACCEPT\nCOMMIT\n")
		want := []string{"?-A WEAVE-NPC -p udp -j ACCEPT", Rule{Target: "-j DROP"}.ID()}
		if diff := cmp.Diff(want, table.read(t).Chains["WEAVE-NPC"].IDs); diff != "" {
			t.Errorf("ids (-want +got):\n%s", diff)
		}
	})
}

func TestRestoreErrorNamesTheLineAndNothingChanges(t *testing.T) {
	good := Rule{Match: "-p tcp", Target: "-j ACCEPT"}
	tests := map[string]struct {
		bad Rule
		// commitOnLegacy is set if the legacy kernel rejects the transaction without a line number.
		commitOnLegacy bool
	}{
		"missing set":    {bad: Rule{Match: "-m set --match-set missing src", Target: "-j ACCEPT"}},
		"missing chain":  {bad: Rule{Target: "-g WEAVE-NPC-MISSING"}},
		"unknown match":  {bad: Rule{Match: "-m nosuchmatch"}},
		"unknown option": {bad: Rule{Match: "-p tcp --nosuchoption"}},
		"bad port":       {bad: Rule{Match: "-p tcp -m tcp --dport 99999", Target: "-j ACCEPT"}},
		"line break":     {bad: Rule{Match: "-p tcp\n-F FORWARD"}},
		"open quote":     {bad: Rule{Match: `-m string --string "x`}},
		"kernel refuses": {bad: Rule{Match: `-m bpf --bytecode "1,32 0 0 12"`}, commitOnLegacy: true},
	}
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.restore(t, foreignRules)
		table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{good}}}})
		before := table.saved(t)
		for name, tt := range tests {
			update := Update{
				Replace: []Chain{{Name: "WEAVE-NPC-NEW", Tail: []Rule{good, tt.bad, good}}, {Name: "WEAVE-NPC"}},
				Jumps:   []Jump{{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC-NEW"}}},
			}
			err := table.Apply(t.Context(), update)
			var refused *restoreError
			if !errors.As(err, &refused) {
				t.Errorf("%s: error is %v, want a restoreError", name, err)
				continue
			}
			t.Logf("%s: %v", name, err)
			if diff := cmp.Diff(before, table.saved(t)); diff != "" {
				t.Errorf("%s: a failed update changed (-before +after):\n%s", name, diff)
			}
			if tt.commitOnLegacy && table.Backend() == Legacy {
				if refused.Text != "COMMIT" {
					t.Errorf("%s: line %d, %q is to blame, want COMMIT", name, refused.Line, refused.Text)
				}
				continue
			}
			if want := "-A WEAVE-NPC-NEW " + tt.bad.String(); refused.Text != want {
				t.Errorf("%s: line %d, %q is to blame, want %q", name, refused.Line, refused.Text, want)
			}
			_, err = Words(refused.Text)
			if err == nil && (refused.ID != tt.bad.ID() || refused.Chain != "WEAVE-NPC-NEW") {
				t.Errorf("%s: rule %q of chain %q is to blame, want %q", name, refused.ID, refused.Chain, tt.bad.ID())
			}
		}
	})
}

func TestStaleJumpThatIsNotThere(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.restore(t, foreignRules)
		before := table.saved(t)
		for _, stale := range []string{
			"-A FORWARD -j ACCEPT", "-A INPUT -j ACCEPT", "-F FORWARD", "-A FORWARD -j X\n-F FORWARD",
		} {
			err := table.Apply(t.Context(), Update{
				Replace: []Chain{{Name: "WEAVE-NPC"}},
				Jumps:   []Jump{{Chain: "FORWARD", Stale: []string{stale}}},
			})
			var refused *restoreError
			if !errors.As(err, &refused) || refused.Line != 3 {
				t.Errorf("stale %q: error is %v, want a restoreError for line 3", stale, err)
			}
			t.Log(err)
		}
		if diff := cmp.Diff(before, table.saved(t)); diff != "" {
			t.Errorf("a failed update changed (-before +after):\n%s", diff)
		}
	})
}

func TestReadMakesNoTable(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			sandbox.Thread(t)
			for _, backend := range []Backend{Legacy, NFT} {
				table, err := New(family, backend)
				if err != nil {
					t.Fatal(err)
				}
				if seen := table.read(t); len(seen.Chains) != 0 {
					t.Errorf("chains are %v, want none", seen.Chains)
				}
			}
			if tables, err := legacyTables(family); err != nil || len(tables) != 0 {
				t.Errorf("legacy tables are %q, %v; want none", tables, err)
			}
		})
	}
}

func TestFingerprint(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.restore(t, foreignRules)
		take := func() Fingerprint {
			t.Helper()
			f, err := table.Fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		last := take()
		unchanged := func(what string) {
			t.Helper()
			if now := take(); now != last {
				t.Errorf("%s changed the fingerprint from %+v to %+v", what, last, now)
			}
		}
		changed := func(what string) {
			t.Helper()
			now := take()
			if now == last {
				t.Errorf("%s left the fingerprint at %+v", what, last)
			}
			last = now
		}
		unchanged("nothing")
		table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC"}}})
		changed("a new chain")
		table.apply(t, Update{Insert: map[string][]Rule{"WEAVE-NPC": {{Target: "-j DROP"}}}})
		changed("an inserted rule")
		table.apply(t, Update{Jumps: []Jump{{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC"}}}})
		changed("a jump")
		table.read(t)
		unchanged("Read")
		checkChain(t, table, Chain{Name: "WEAVE-NPC", Tail: []Rule{{Target: "-j DROP"}}})
		unchanged("Chain")
		if err := table.Apply(t.Context(), Update{Delete: []string{"WEAVE-NPC"}}); err == nil {
			t.Fatal("a chain was deleted that FORWARD jumps to")
		}
		unchanged("a failed update")
		table.restore(t, "*filter\n-D FORWARD -p udp -j DROP\nCOMMIT\n")
		changed("a foreign deletion")
		table.apply(t, Update{Jumps: Referrers(table.read(t), "WEAVE-NPC"), Delete: []string{"WEAVE-NPC"}})
		changed("a deletion")
	})
}

// An update whose time is over must leave no process behind, nor be taken for one that changed nothing.
func TestApplyEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	script, children := filepath.Join(dir, "restore"), filepath.Join(dir, "children")
	body := "#!/bin/sh\nsleep 1000 &\necho $! $$ > " + children + ".new\nmv " + children + ".new " + children + "\nwait\n"
	if err := os.WriteFile(script, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(children); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	table := &Table{family: IPv4, backend: NFT, programs: programs{restore: script}}
	err := table.Apply(ctx, Update{Delete: []string{"WEAVE-NPC"}})
	var refused *restoreError
	if !errors.Is(err, context.Canceled) || errors.As(err, &refused) {
		t.Errorf("error is %v, want one that is canceled and no restoreError", err)
	}
	pids, err := os.ReadFile(children)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(pids)) {
		for running(pid) {
			time.Sleep(time.Millisecond) // go test's own time limit ends a failure
		}
	}
}

// Legacy programs exclude each other: an update must wait for another's lock, not fail.
func TestApplyWaitsForTheLock(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	t.Setenv("XTABLES_LOCKFILE", lock)
	sandbox.Thread(t)
	table, err := New(IPv4, Legacy)
	if err != nil {
		t.Fatal(err)
	}
	holder, err := unix.Open(lock, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(holder, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	update := Update{Replace: []Chain{{Name: "WEAVE-NPC"}}}
	impatient := *table
	impatient.waitArgs = []string{"--wait=1"}
	var refused *restoreError
	err = impatient.Apply(t.Context(), update)
	if !errors.As(err, &refused) || !strings.Contains(refused.Output, "lock") {
		t.Errorf("error is %v, want a restoreError that speaks of the lock", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { unix.Close(holder) })
	table.apply(t, update)
}

// A rule that iptables cannot show must not pass for an empty table, nor for a rule of ours.
func TestReadOfWhatIptablesCannotShow(t *testing.T) {
	sandbox.Thread(t)
	table, err := New(IPv4, NFT)
	if err != nil {
		t.Fatal(err)
	}
	table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC"}}})
	command(t, "nft", "add", "rule", "ip", "filter", "WEAVE-NPC", "meta", "cpu", "1", "drop")
	seen, err := table.Read(t.Context(), "WEAVE-NPC")
	if ids := seen.Chains["WEAVE-NPC"].IDs; err != nil || !seen.Native || len(ids) != 1 || !strings.HasPrefix(ids[0], "?") {
		t.Errorf("read %+v, %v", seen, err)
	}
}

// running reports whether a process exists and is no zombie.
func running(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestWithoutPermission(t *testing.T) {
	for _, backend := range []Backend{NFT, Legacy} {
		for _, family := range []Family{IPv4, IPv6} {
			t.Run(family.String()+" "+string(backend), func(t *testing.T) {
				sandbox.Thread(t)
				// Of this thread alone, which ends with the test.
				if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
					t.Fatalf("dropping root: %v", errno)
				}
				_, err := New(family, backend)
				if err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
					t.Errorf("error is %v, want one that says what is needed", err)
				}
				_, _, err = Detect(t.Context(), "")
				if err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
					t.Errorf("detecting: error is %v, want one that says what is needed", err)
				}
			})
		}
	}
}

func TestNewWithoutPrograms(t *testing.T) {
	_, err := programDirs{t.TempDir()}.open(IPv6, Legacy)
	if err == nil || !strings.Contains(err.Error(), "ip6tables-legacy") || !strings.Contains(err.Error(), "install") {
		t.Errorf("error is %v, want one that names the program and the way out", err)
	}
}

func TestWaitArgs(t *testing.T) {
	tests := map[string]struct {
		version []int
		want    string
	}{
		"polls":   {[]int{1, 8, 7}, "--wait=1 --wait-interval=50000"},
		"waits":   {[]int{1, 8, 8}, "--wait=1"},
		"later":   {[]int{1, 10, 0}, "--wait=1"},
		"earlier": {[]int{1, 6, 2}, "--wait=1 --wait-interval=50000"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(waitArgs(tt.version), " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTryChangesNothing(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{{Target: "-j RETURN"}}}}})
		before := table.saved(t)
		if err := table.Try(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, table.saved(t)); diff != "" {
			t.Errorf("the table has changed (-before +after):\n%s", diff)
		}
		table.programs.restore = "/bin/false"
		if err := table.Try(t.Context()); err == nil || !strings.Contains(err.Error(), "/bin/false") {
			t.Errorf("with a program that fails the error is %v", err)
		}
	})
}
