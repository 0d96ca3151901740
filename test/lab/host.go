package lab

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pkg/errors"
)

// Host is one network namespace of a network: a node, a pod or a host outside the cluster. Its methods may be called
// concurrently.
type Host struct {
	harness *Network
	name    string
	netns   string // name below netnsDir
	thread  *thread
	addrs   []netip.Addr
	fresh   atomic.Uint32 // ports and identifiers given out

	users sync.WaitGroup // calls that are running on thread

	mu       sync.Mutex // guards the fields below, and that users grow only until stopped is set
	stopped  bool
	commands map[*Cmd]bool // those that run
	servers  []closer
	sctp     *sctpServer
}

// closer is something that lives in a host's namespace and ends with the host.
type closer interface{ Close() error }

// Name returns what the host was called when it was made: node1, shop/web.
func (h *Host) Name() string { return h.name }

// String returns the name.
func (h *Host) String() string { return h.name }

// Namespace returns the name under which `ip netns exec` finds the host.
func (h *Host) Namespace() string { return h.netns }

// NamespacePath returns the file that nsenter --net= takes.
func (h *Host) NamespacePath() string { return filepath.Join(netnsDir, h.netns) }

// Addrs returns the host's addresses, without loopback and link-local ones; the first of a family is its main one.
func (h *Host) Addrs() []netip.Addr { return h.addrs }

// Addr4 returns the first IPv4 address, or the zero Addr.
func (h *Host) Addr4() netip.Addr { return h.Addr(4) }

// Addr6 returns the first IPv6 address, or the zero Addr.
func (h *Host) Addr6() netip.Addr { return h.Addr(6) }

// Addr returns the first address of a family, 4 or 6, or the zero Addr.
func (h *Host) Addr(family int) netip.Addr {
	for _, addr := range h.addrs {
		if addr.Is4() == (family == 4) {
			return addr
		}
	}
	return netip.Addr{}
}

// LinkLocal returns the link-local IPv6 address of an interface (eth0, cni0), with that interface as its zone; a probe
// from another host on the same link needs the zone of its own interface: addr.WithZone("eth0").
func (h *Host) LinkLocal(interfaceName string) (netip.Addr, error) {
	var found netip.Addr
	err := h.inside(func() error {
		link, err := net.InterfaceByName(interfaceName)
		if err != nil {
			return errors.Wrapf(err, "finding interface %s", interfaceName)
		}
		addrs, err := link.Addrs()
		if err != nil {
			return errors.Wrapf(err, "listing the addresses of %s", interfaceName)
		}
		for _, addr := range addrs {
			prefix, err := netip.ParsePrefix(addr.String())
			if err == nil && prefix.Addr().Is6() && prefix.Addr().IsLinkLocalUnicast() {
				found = prefix.Addr().WithZone(interfaceName)
				return nil
			}
		}
		return errors.Errorf("interface %s has no link-local address", interfaceName)
	})
	return found, errors.Wrapf(err, "host %s", h.name)
}

// Do calls f on a thread of its own in the host's network namespace. Only that thread is there: what f starts in other
// goroutines is not, but sockets that f opens stay there, and so do processes that it starts (not with a parent-death
// signal: the thread ends with f). /proc/net shows another namespace there, /proc/thread-self/net shows the right one.
// Close does not wait for f; the kernel keeps the namespace, without a name, until f returns.
func (h *Host) Do(f func() error) error {
	result := make(chan error, 1)
	onOwnThread(func() {
		if err := enterNamespace(h.netns); err != nil {
			result <- err
			return
		}
		defer func() {
			select {
			case result <- errors.Errorf("a function run on host %s ended its goroutine", h.name):
			default:
			}
		}()
		result <- f()
	})
	return <-result
}

// DialContext connects from the host, as net.Dialer does; rest.Config and http.Transport take it. The address must be
// numeric: a network has no name servers.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, errors.Wrapf(err, "dialing from host %s", h.name)
	}
	var conn net.Conn
	err := h.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// inside calls f, which must be short, on the host's thread.
func (h *Host) inside(f func() error) error {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return errors.Errorf("host %s is closed", h.name)
	}
	h.users.Add(1)
	h.mu.Unlock()
	defer h.users.Done()
	return h.thread.run(f)
}

// keep registers something to be closed with the host, or closes it at once if the host is closed already.
func (h *Host) keep(c closer) {
	h.mu.Lock()
	stopped := h.stopped
	if !stopped {
		h.servers = append(h.servers, c)
	}
	h.mu.Unlock()
	if stopped {
		_ = c.Close()
	}
}

// forget closes something that keep registered.
func (h *Host) forget(c closer) {
	_ = c.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers = slices.DeleteFunc(h.servers, func(kept closer) bool { return kept == c })
}

// stop ends all that runs on the host and all that this process holds of its namespace.
func (h *Host) stop() {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return
	}
	h.stopped = true
	var commands []*Cmd
	for c := range h.commands {
		commands = append(commands, c)
	}
	servers := h.servers
	h.servers = nil
	h.mu.Unlock()

	for _, s := range servers {
		_ = s.Close()
	}
	for _, c := range commands {
		c.kill()
	}
	h.users.Wait()
	h.thread.stop()
}

// remove removes the host from the network.
func (h *Host) remove() error {
	err := h.discard()
	h.harness.mu.Lock()
	if h.harness.hosts[h.name] == h {
		delete(h.harness.hosts, h.name)
	}
	h.harness.mu.Unlock()
	return errors.Wrapf(err, "removing host %s", h.name)
}

// discard ends the host and removes its namespace.
func (h *Host) discard() error {
	h.stop()
	return removeNamespaces(h.netns)
}
