package lab

import (
	"fmt"
	"net/netip"
	"os"
	"sort"
	"sync"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Attach is how a node's pods are connected to it.
type Attach int

const (
	// Bridge attaches pods to the bridge cni0, whose frames pass iptables (br_netfilter), in hairpin mode.
	Bridge Attach = iota
	// Routed gives each pod a veth of its own with a host route on the node; there is no bridge.
	Routed
)

// String names the attachment as tests do.
func (a Attach) String() string {
	if a == Routed {
		return "routed"
	}
	return "bridge"
}

// maxNodes is what one digit in an address allows.
const maxNodes = 9

// Config describes the network that New builds.
type Config struct {
	// Nodes is the number of nodes, 1 to 9.
	Nodes int
	// IPv4 and IPv6 are the families with addresses; at least one.
	IPv4, IPv6 bool
	Attach     Attach
	// Dump returns what to show of a node when Expect gives up; nil is DumpFilter.
	Dump func(*Node) string
}

// Network is a switch with nodes and outside hosts on it. Its methods may be called concurrently.
type Network struct {
	config  Config
	id      string
	run     *run
	network *Host // the switch: a namespace with nothing but a bridge
	nodes   []*Node
	outside *Host

	mu     sync.Mutex       // guards the fields below
	hosts  map[string]*Host // name -> host, the switch excepted
	closed bool
}

// New builds a network. Close removes it.
func New(config Config) (*Network, error) {
	if config.Nodes < 1 || config.Nodes > maxNodes {
		return nil, errors.Errorf("a network has 1 to %d nodes, not %d", maxNodes, config.Nodes)
	}
	if !config.IPv4 && !config.IPv6 {
		return nil, errors.New("a network needs IPv4, IPv6 or both")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root: run this as root, or with sudo")
	}
	if config.Dump == nil {
		config.Dump = DumpFilter
	}
	run, err := newRun()
	if err != nil {
		return nil, err
	}
	w := &Network{config: config, id: run.id, run: run, hosts: map[string]*Host{}}
	if err := w.build(); err != nil {
		_ = w.Close()
		return nil, errors.Wrap(err, "building a network of namespaces")
	}
	return w, nil
}

func (w *Network) build() error {
	network, err := w.newNamespace("switch")
	if err != nil {
		return err
	}
	w.network = network
	if err := w.network.inside(makeSwitch); err != nil {
		return errors.Wrap(err, "making the switch")
	}
	for i := 1; i <= w.config.Nodes; i++ {
		node, err := w.newNode(i)
		if err != nil {
			return errors.Wrapf(err, "making node%d", i)
		}
		w.nodes = append(w.nodes, node)
	}
	outside := w.families([]string{"192.0.2.10", "2001:db8::10"})
	w.outside, err = w.AddHost("outside", outside...)
	return err
}

// switchBridge is the bridge in the switch's namespace.
const switchBridge = "br0"

func makeSwitch() error {
	if err := setSysctls(map[string]string{
		"net/bridge/bridge-nf-call-iptables":  "0",
		"net/bridge/bridge-nf-call-ip6tables": "0",
	}); err != nil {
		return err
	}
	return addBridge(switchBridge, hardwareAddr(netip.MustParseAddr("172.31.0.1")))
}

// families parses one IPv4 and one IPv6 address and returns those whose family the network has.
func (w *Network) families(addrs []string) []netip.Addr {
	var kept []netip.Addr
	for _, s := range addrs {
		addr := netip.MustParseAddr(s)
		if addr.Is4() && w.config.IPv4 || addr.Is6() && w.config.IPv6 {
			kept = append(kept, addr)
		}
	}
	return kept
}

// AddHost puts a host that is no node on the switch. It reaches every node, every pod and every other host directly,
// and they reach it, whatever its addresses are.
func (w *Network) AddHost(name string, addrs ...netip.Addr) (*Host, error) {
	h, err := w.newHost(name)
	if err != nil {
		return nil, err
	}
	h.addrs = addrs
	if err := w.plug(h, singles(addrs)); err != nil {
		_ = h.remove()
		return nil, errors.Wrapf(err, "connecting host %s", name)
	}
	err = h.inside(func() error {
		for _, node := range w.nodes {
			if err := node.routesThrough(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		_ = h.remove()
		return nil, errors.Wrapf(err, "routing from host %s", name)
	}
	return h, nil
}

// plug connects a host's eth0 to the switch, with a default route that finds every address on the wire.
func (w *Network) plug(h *Host, addrs []netip.Prefix) error {
	port := portName("p", h.netns)
	err := w.network.inside(func() error {
		if err := addVeth(port, h, hardwareAddr(addrs[0].Addr())); err != nil {
			return err
		}
		return enslave(port, switchBridge, false)
	})
	if err != nil {
		return err
	}
	if err := h.inside(func() error {
		if err := raise(podInterface, addrs...); err != nil {
			return err
		}
		return addDefaultRoutes(w.config)
	}); err != nil {
		return err
	}
	return w.network.inside(func() error { return awaitUp(port) })
}

// addDefaultRoutes sends everything straight to the wire.
func addDefaultRoutes(config Config) error {
	if config.IPv4 {
		if err := addRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.Addr{}, podInterface, netip.Addr{}); err != nil {
			return err
		}
	}
	if config.IPv6 {
		return addRoute(netip.MustParsePrefix("::/0"), netip.Addr{}, podInterface, netip.Addr{})
	}
	return nil
}

// Node returns a node by its name, node1 to node9; it panics if there is none, as that is a mistake in the caller.
func (w *Network) Node(name string) *Node {
	for _, n := range w.nodes {
		if n.Name() == name {
			return n
		}
	}
	panic(fmt.Sprintf("the network has no node %q", name))
}

// Nodes returns the nodes in their order.
func (w *Network) Nodes() []*Node { return w.nodes }

// Outside returns the host outside the cluster that every network has: 192.0.2.10 and 2001:db8::10.
func (w *Network) Outside() *Host { return w.outside }

// Hosts returns all current nodes, pods and outside hosts, sorted by name.
func (w *Network) Hosts() []*Host {
	w.mu.Lock()
	defer w.mu.Unlock()
	var hosts []*Host
	for _, h := range w.hosts {
		hosts = append(hosts, h)
	}
	sort.Slice(hosts, func(i, j int) bool { return hosts[i].name < hosts[j].name })
	return hosts
}

// Dir returns a directory for files of the network.
func (w *Network) Dir() string { return w.run.dir }

// Close ends what runs in the network and removes it. It may be called more than once.
func (w *Network) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.mu.Unlock()

	hosts := w.Hosts()
	if w.network != nil {
		hosts = append(hosts, w.network)
	}
	for _, h := range hosts {
		h.stop()
	}
	return w.run.remove()
}

// newHost makes a namespace with the settings that all hosts have in common and registers it under its name.
func (w *Network) newHost(name string) (*Host, error) {
	h, err := w.newNamespace(name)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	taken := w.hosts[name] != nil || w.closed
	if !taken {
		w.hosts[name] = h
	}
	w.mu.Unlock()
	if taken {
		_ = h.discard()
		return nil, errors.Errorf("host %s exists already, or the network is closed", name)
	}
	return h, nil
}

// newNamespace makes a namespace whose interfaces are quiet: no router solicitations, no duplicate address detection.
func (w *Network) newNamespace(name string) (*Host, error) {
	netns, err := w.run.createNamespace(name)
	if err != nil {
		return nil, errors.Wrapf(err, "creating the network namespace of %s", name)
	}
	thread, err := newThread(func() error { return enterNamespace(netns) })
	if err != nil {
		_ = removeNamespaces(netns)
		return nil, errors.Wrapf(err, "entering the network namespace of %s", name)
	}
	h := &Host{harness: w, name: name, netns: netns, thread: thread, commands: map[*Cmd]bool{}}
	err = h.inside(func() error {
		if err := setSysctls(map[string]string{
			"net/ipv6/conf/all/accept_dad":               "0",
			"net/ipv6/conf/default/accept_dad":           "0",
			"net/ipv6/conf/all/accept_ra":                "0",
			"net/ipv6/conf/default/accept_ra":            "0",
			"net/ipv6/conf/default/router_solicitations": "0",
			"net/ipv4/conf/all/rp_filter":                "0",
			"net/ipv4/conf/default/rp_filter":            "0",
			"net/ipv4/conf/all/accept_redirects":         "0",
			"net/ipv4/conf/default/accept_redirects":     "0",
			"net/ipv4/conf/all/send_redirects":           "0",
			"net/ipv4/conf/default/send_redirects":       "0",
			"net/ipv6/conf/all/accept_redirects":         "0",
			"net/ipv6/conf/default/accept_redirects":     "0",
			// Probes of a closed port are answered as often as they come, and ping sockets are open to root.
			"net/ipv4/icmp_ratelimit":   "0",
			"net/ipv6/icmp/ratelimit":   "0",
			"net/ipv4/ping_group_range": "0 0",
		}); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return errors.Wrap(err, "finding the loopback interface")
		}
		return errors.Wrap(netlink.LinkSetUp(lo), "setting lo up")
	})
	if err != nil {
		_ = h.discard()
		return nil, errors.Wrapf(err, "preparing the network namespace of %s", name)
	}
	return h, nil
}

// setSysctls sets kernel parameters, path below /proc/sys -> value, of the calling thread's network namespace.
func setSysctls(values map[string]string) error {
	for path, value := range values {
		err := os.WriteFile("/proc/sys/"+path, []byte(value), 0)
		if errors.Is(err, unix.ENOENT) && len(path) > 11 && path[:11] == "net/bridge/" {
			return errors.Errorf("/proc/sys/%s is missing: load br_netfilter (modprobe br_netfilter)", path)
		}
		if err != nil {
			return errors.Wrapf(err, "setting %s", path)
		}
	}
	return nil
}
