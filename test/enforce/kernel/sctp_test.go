package kernel

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

// sctpPods are pods whose hosts answer SCTP by the kernel's sockets alone, and their nodes.
var sctpPods = map[string]string{"x/xa": "node1", "x/xb": "node2", "y/ya": "node1", "y/yb": "node2", "z/za": "node2"}

// sctpCluster returns a cluster with these pods, each with servers at ports 80 and 81, and the change that makes them.
func sctpCluster(t *testing.T, backend lab.Backend) (*e2e.Cluster, e2e.Change) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	if err != nil {
		sandbox.Lacks(t, "SCTP sockets", err)
	}
	unix.Close(fd)
	w := e2e.New(t, backend, lab.Config{})
	pods := []e2e.Change{e2e.Base(), e2e.Namespace("x", "name=x"), e2e.Namespace("y", "name=y"),
		e2e.Namespace("z", "name=z")}
	for name, node := range sctpPods {
		p := w.AddPod(t, node, e2e.OwnName(name), lab.PodConfig{})
		for _, port := range []uint16{80, 81} {
			associate(t, p.Host, port)
		}
		if err := p.Serve("tcp", 80); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, e2e.Pod(name, e2e.Labelled("pod="+e2e.OwnName(name)[1:])))
	}
	state := e2e.Do(pods...)
	w.Begin(t, state)
	return w, state
}

// associate has a host accept associations at a port, and send back what it is sent.
func associate(t *testing.T, h *lab.Host, port uint16) {
	t.Helper()
	var fd int
	err := h.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
			unix.IPPROTO_SCTP); err != nil {
			return err
		}
		if err = unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)}); err != nil {
			return err
		}
		return unix.Listen(fd, 64)
	})
	if err != nil {
		t.Fatalf("serving SCTP port %d on %s: %v", port, h, err)
	}
	listener := os.NewFile(uintptr(fd), "sctp")
	t.Cleanup(func() { listener.Close() })
	raw, err := listener.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			var conn int
			var failed error
			if raw.Read(func(fd uintptr) bool {
				conn, _, failed = unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
				return !errors.Is(failed, unix.EAGAIN)
			}) != nil {
				return // closed with the test
			}
			if failed == nil {
				go func() {
					c := os.NewFile(uintptr(conn), "sctp")
					defer c.Close()
					_, _ = io.Copy(c, c) // the client sees what went wrong
				}()
			}
		}
	}()
}

// says reports whether a message over a new association is answered within a time.
func says(from *lab.Host, to netip.Addr, port uint16, within time.Duration) (bool, error) {
	family := unix.AF_INET6
	var address unix.Sockaddr = &unix.SockaddrInet6{Addr: to.As16(), Port: int(port)}
	if to.Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: to.As4(), Port: int(port)}
	}
	var fd int
	err := from.Do(func() (err error) {
		if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
			unix.IPPROTO_SCTP); err != nil {
			return err
		}
		if err = unix.Connect(fd, address); errors.Is(err, unix.EINPROGRESS) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, err
	}
	c := os.NewFile(uintptr(fd), "sctp")
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return false, err
	}
	answer := make([]byte, 16)
	n := 0
	if err = associated(c); err == nil {
		if _, err = c.WriteString("hello"); err == nil {
			n, err = c.Read(answer)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return string(answer[:n]) == "hello", err
}

// associated waits until an association that was begun is there.
func associated(c *os.File) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		if code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
			failed = errors.Join(err, unix.Errno(code))
			return true
		}
		_, failed = unix.Getpeername(int(fd))
		return !errors.Is(failed, unix.ENOTCONN)
	})
	return errors.Join(err, failed)
}

// expectAssociations checks, for all pairs of the pods and both families, which associations come about at a port.
func expectAssociations(t *testing.T, w *e2e.Cluster, port uint16, allowed func(from, to string) bool) {
	t.Helper()
	var all sync.WaitGroup
	for from := range sctpPods {
		for to := range sctpPods {
			want := allowed(from, to)
			within := e2e.DeniedTimeout
			if want {
				within = e2e.Converged
			}
			e2e.EachFamily(func(family int) {
				if from == to {
					return
				}
				all.Go(func() {
					client, server := w.Hosts[e2e.OwnName(from)], w.Hosts[e2e.OwnName(to)]
					if got, err := says(client, server.Addr(family), port, within); got != want || err != nil {
						t.Errorf("%s to port %d of %s, IPv%d: %t, %v, want %t", from, port, to, family, got, err, want)
					}
				})
			})
		}
	}
	all.Wait()
	if t.Failed() {
		t.Log(w.State())
	}
}

// TestS41_Associations has real associations meet what the specs of Kubernetes for SCTP ask for
// (Feature:SCTPConnectivity), and a policy for one protocol leave the other alone.
func TestS41_Associations(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, state := sctpCluster(t, backend)
		everything := func(_, _ string) bool { return true }
		for _, c := range []struct {
			name, policy string
			port         uint16
			allowed      func(from, to string) bool
			tcp          string // which hosts reach port 80 by TCP
		}{
			{"no policy", "", 80, everything, ""},
			{"default deny of ingress", `{podSelector: {}, policyTypes: [Ingress]}`, 80,
				func(_, to string) bool { return to[0] != 'x' }, "-*>xa,xb"},
			{"based on ports", `{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress], ingress: [{` +
				`from: [{namespaceSelector: {matchLabels: {name: "y"}}}], ports: [{protocol: SCTP, port: 81}]}]}`, 81,
				func(from, to string) bool { return to != "x/xa" || from[0] == 'y' }, "-*>xa"},
			{"based on ports, another one", `{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress], ingress: [{` +
				`from: [{namespaceSelector: {matchLabels: {name: "y"}}}], ports: [{protocol: SCTP, port: 81}]}]}`, 80,
				func(_, to string) bool { return to != "x/xa" }, "-*>xa"},
			{"based on a pod of another namespace", `{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress], ` +
				`ingress: [{from: [{namespaceSelector: {matchLabels: {name: "y"}}, podSelector: {matchLabels: {pod: a}}}]}]}`,
				80, func(from, to string) bool { return to != "x/xa" || from == "y/ya" }, "-*>xa +ya>xa"},
			{"TCP alone", `{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress], ingress: [{ports: [{port: 80}]}]}`,
				80, func(_, to string) bool { return to != "x/xa" }, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				changed := state
				if c.policy != "" {
					changed = e2e.Do(state, e2e.Policy("x/p", c.policy))
				}
				w.Apply(t, w.Objects(changed))
				expectAssociations(t, w, c.port, c.allowed)
				w.Expect(t, e2e.Wants{"tcp 80": c.tcp})
			})
		}
	})
}
