package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inside is set where the tests run in a network namespace of their own.
const inside = "AGNHOST_TEST_INSIDE"

// TestMain runs the tests again in a network namespace of their own, as root.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		if output, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "bringing the loopback interface up: %v: %s", err, output)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "running the tests in a network namespace, as root: %v\n", err)
		os.Exit(1)
	}
}

// TestConnect connects over the loopback interface. Both ends see all packets there.
func TestConnect(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, map[uint16]bool{9003: true}) }()
	defer func() {
		cancel()
		<-ended
	}()
	for name, c := range map[string]struct {
		to, timeout string
		status      int
		stderr      string
	}{
		"served over IPv4": {"127.0.0.1:9003", "10s", 0, ""},
		"served over IPv6": {"[::1]:9003", "10s", 0, ""},
		"not served":       {"[::1]:9004", "100ms", 1, "TIMEOUT\n"},
		"no port":          {"[::1]", "1s", 1, "UNKNOWN: "},
		"no number":        {"[::1]:sctp", "1s", 1, "UNKNOWN: "},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr strings.Builder
			start := time.Now()
			status := connect([]string{"--timeout=" + c.timeout, "--protocol=sctp", c.to}, &stderr)
			if status != c.status || !strings.HasPrefix(stderr.String(), c.stderr) || (c.stderr == "") != (stderr.String() == "") {
				t.Errorf("after %s: status %d, %q; want %d, %q", time.Since(start), status, stderr.String(), c.status, c.stderr)
			}
		})
	}
}

func TestOverSCTP(t *testing.T) {
	for args, want := range map[string]bool{
		"--timeout=3s --protocol=sctp [::1]:1": true,
		"--protocol sctp 10.0.0.1:1":           true,
		"--timeout=3s --protocol=udp [::1]:1":  false,
		"10.0.0.1:1":                           false,
	} {
		if got := overSCTP(strings.Fields(args)); got != want {
			t.Errorf("connect %s: %t", args, got)
		}
	}
}

func TestServedPorts(t *testing.T) {
	ports, err := servedPorts([]string{"HOME=/", "SERVE_SCTP_PORT_9003=foo", "SERVE_PORT_80=foo"})
	if err != nil || len(ports) != 1 || !ports[9003] {
		t.Errorf("got %v, %v", ports, err)
	}
	if _, err := servedPorts([]string{"SERVE_SCTP_PORT_70000=foo"}); err == nil {
		t.Error("70000 is a port")
	}
}
