package input

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestAMistakeIsOneClearLine(t *testing.T) {
	t.Parallel()
	w := e2e.New(t, lab.NFT, lab.Config{})
	n := w.Node("node1")
	dir := e2e.NewManifests(t, w).Dir
	e2e.WriteNode(t, dir, "node1")
	broken := filepath.Join(w.Dir(), "broken-kubeconfig")
	if err := os.WriteFile(broken, []byte("clusters: [x"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(w.Dir(), "empty-kubeconfig")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	there := e2e.StartDaemon(t, n, "--manifests", dir)
	there.AwaitReady(t)

	ok := []string{"--node-name", "node1", "--manifests", dir, "--metrics-addr", ""}
	for _, c := range []struct {
		name string
		args []string
		env  string
		says string
	}{
		{"unknown_flag", append(ok, "--bogus"), "", `--bogus`},
		{"a_word_too_many", append(ok, "bogus"), "", `bogus`},
		{"no_node_name", []string{"--manifests", dir}, "", `--node-name.*HOSTNAME`},
		{"fail_closed", append(ok, "--fail-closed", "ajar"), "", `--fail-closed.*ajar.*auto.*never.*always`},
		{"fail_closed_from_the_environment", ok, "WEAVE_NPC_FAIL_CLOSED=ajar", `fail-closed.*ajar`},
		{"a_number_from_the_environment", ok, "WEAVE_NPC_MAX_LIST_SIZE=many", `WEAVE_NPC_MAX_LIST_SIZE`},
		{"a_misspelt_variable", ok, "WEAVE_NPC_POD_INTERFAC=cni0",
			`\$WEAVE_NPC_POD_INTERFAC: .*\$WEAVE_NPC_POD_INTERFACE`},
		{"forward_jump", append(ok, "--forward-jump=input"), "", `--forward-jump.*input`},
		{"allow_action", append(ok, "--allow-action", "DROP"), "", `--allow-action.*DROP.*ACCEPT.*RETURN`},
		{"log_level", append(ok, "--log-level", "loud"), "", `--log-level.*loud.*debug.*info.*warning.*error`},
		{"log_format", append(ok, "--log-format", "xml"), "", `--log-format.*xml.*text.*json`},
		{"counted_ports", append(ok, "--counted-ports", "80,0"), "", `--counted-ports: 0`},
		{"pprof_for_all", append(ok, "--pprof-addr", "0.0.0.0:0"), "", `--pprof-addr.*0\.0\.0\.0:0.*loopback`},
		{"pcap_over_something_else", append(ok, "--ulogd-pcap", broken), "",
			`--ulogd-pcap.*broken-kubeconfig.*no capture`},
		{"pcap_nowhere", append(ok, "--ulogd-pcap", "/nonexistent/dir/file"), "", `--ulogd-pcap.*/nonexistent/dir`},
		{"pcap_size", append(ok, "--ulogd-pcap-size", "0"), "", `--ulogd-pcap-size: 0`},
		{"pod_cidr", append(ok, "--pod-cidr", "10.32.1.0"), "", `--pod-cidr.*10\.32\.1\.0`},
		{"backend", append(ok, "--iptables-backend", "ebpf"), "", `--iptables-backend.*ebpf.*nft.*legacy`},
		{"nflog_group", append(ok, "--nflog-group", "0"), "", `--nflog-group`},
		{"nflog_group_too_large", append(ok, "--nflog-group", "70000"), "", `nflog-group`},
		{"max_list_size", append(ok, "--max-list-size", "-1"), "", `--max-list-size`},
		{"pod_interface_is_a_port", append(ok, "--pod-interface", w.Veths["web"]), "",
			`--pod-interface.*port of a bridge`},
		{"pod_interface_is_no_name", append(ok, "--pod-interface", "a b"), "", `--pod-interface`},
		{"bridge_port_is_no_name", append(ok, "--bridge-port-name", "x; rm"), "", `--bridge-port-name`},
		{"two_sources", append(ok, "--kubeconfig", broken), "", `--kubeconfig.*--manifests`},
		{"no_source", []string{"--node-name", "node1"}, "", `--kubeconfig.*--manifests`},
		{"no_such_kubeconfig", []string{"--node-name", "node1", "--kubeconfig", "/nonexistent/config"}, "",
			`/nonexistent/config.*--kubeconfig`},
		{"broken_kubeconfig", []string{"--node-name", "node1", "--kubeconfig", broken}, "",
			`broken-kubeconfig.*--kubeconfig`},
		{"empty_kubeconfig", []string{"--node-name", "node1", "--kubeconfig", empty}, "",
			`empty-kubeconfig.*--kubeconfig`},
		{"no_such_directory", []string{"--node-name", "node1", "--manifests", "/nonexistent/dir"}, "",
			`/nonexistent/dir`},
		{"manifests_is_a_file", []string{"--node-name", "node1", "--manifests", empty}, "",
			`empty-kubeconfig.*directory`},
		{"metrics_address", append(ok, "--metrics-addr", "nowhere"), "", `--metrics-addr`},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := e2e.Snapshot(t, n)
			stdout, stderr, status := e2e.Execute(t, n, strings.Fields(c.env), c.args...)
			if status != 1 {
				t.Errorf("exit status %d", status)
			}
			var lines []string
			for line := range strings.Lines(stderr) {
				if !strings.Contains(line, "level=INFO") {
					lines = append(lines, line)
				}
			}
			if len(lines) != 1 || stdout != "" || !strings.HasPrefix(lines[0], "weave-npc: ") ||
				!regexp.MustCompile(c.says).MatchString(lines[0]) {
				t.Errorf("it says:\n%s%s", stdout, stderr)
			}
			e2e.Unchanged(t, n, before)
		})
	}
}

func TestEveryFlagCanComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	w := e2e.New(t, lab.Legacy, lab.Config{})
	n := w.Node("node1")
	m := w.FromManifests(t, e2e.Rich())
	stdout, stderr, status := e2e.Execute(t, n, []string{"WEAVE_NPC_NODE_NAME=node1", "WEAVE_NPC_MANIFESTS=" + m.Dir,
		"WEAVE_NPC_POD_INTERFACE=cni0", "WEAVE_NPC_DRY_RUN=true", "WEAVE_NPC_ALLOW_ACTION=RETURN",
		"WEAVE_NPC_NFLOG_GROUP=4711", "WEAVE_NPC_ALLOW_MCAST=false", "WEAVE_NPC_IPTABLES_BACKEND=legacy"})
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, stderr)
	}
	for _, wanted := range []string{"-o cni0", "--nflog-group 4711", "--nflog-group 4712", "add weave-local-pods"} {
		if !strings.Contains(stdout, wanted) {
			t.Errorf("%q is not in\n%s", wanted, stdout)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	w := e2e.New(t, lab.NFT, lab.Config{})
	for _, c := range []struct{ arg, says string }{{"version", "weave-npc "}, {"--version", "weave-npc "},
		{"--help", "--pod-interface"}} {
		stdout, stderr, status := e2e.Execute(t, w.Node("node1"), nil, c.arg)
		if status != 0 || !strings.Contains(stdout, c.says) {
			t.Errorf("%s ends with %d\n%s\n%s", c.arg, status, stdout, stderr)
		}
	}
}
