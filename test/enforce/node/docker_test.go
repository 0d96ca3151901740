package node

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// The networks of a Docker host: bridges, whose containers may send anywhere but to each other's network.
const (
	dockerOwn   = "cni0" // the network whose containers are pods to weave-npc
	dockerOther = "br-other"
)

// dockerNetworks returns the rules of a version of Docker for these two networks. NETWORK stands for each of them.
func dockerNetworks(whole, each string) rules {
	for _, network := range []string{dockerOwn, dockerOther} {
		whole += strings.ReplaceAll(each, "NETWORK", network)
	}
	return rules(whole + "COMMIT\n")
}

// docker27 returns the rules of Docker up to version 27: a packet from one network to another is dropped in an
// isolation chain.
func docker27() rules {
	return dockerNetworks(`*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
`, `-A FORWARD -o NETWORK -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o NETWORK -j DOCKER
-A FORWARD -i NETWORK ! -o NETWORK -j ACCEPT
-A FORWARD -i NETWORK -o NETWORK -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i NETWORK ! -o NETWORK -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-2 -o NETWORK -j DROP
`)
}

// docker28 returns the rules of Docker from version 28: what is not published is dropped in the chain of the network
// that it goes to.
func docker28() rules {
	return dockerNetworks(`*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-CT - [0:0]
:DOCKER-BRIDGE - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-BRIDGE
`, `-A DOCKER-FORWARD -i NETWORK -j ACCEPT
-A DOCKER-CT -o NETWORK -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-BRIDGE -o NETWORK -j DOCKER
-A DOCKER ! -i NETWORK -o NETWORK -j DROP
`)
}

// addDockerNetwork gives a node a second bridge with a container on it, which weave-npc does not manage.
func addDockerNetwork(t *testing.T, w *e2e.Cluster, n *lab.Node) {
	t.Helper()
	addrs := []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("fd00:18::2")}
	p := w.AddPod(t, n.Name(), "other", lab.PodConfig{Addrs: addrs})
	e2e.Serve(t, p.Host)
	e2e.Run(t, n.Host, "ip", "link", "add", dockerOther, "type", "bridge")
	for _, r := range n.PodRanges() { // the container's gateways
		single := netip.PrefixFrom(r.Addr().Next(), r.Addr().BitLen())
		e2e.Run(t, n.Host, "ip", "address", "add", single.String(), "dev", dockerOther, "nodad")
	}
	e2e.Run(t, n.Host, "ip", "link", "set", dockerOther, "up")
	e2e.Run(t, n.Host, "ip", "link", "set", p.Port(), "master", dockerOther)
	for _, a := range addrs {
		e2e.Run(t, n.Host, "ip", "route", "replace", a.String(), "dev", dockerOther)
	}
}

// TestManifestsKeepDockersIsolation starts weave-npc as README.md does on a host without Kubernetes. What Docker keeps
// apart stays apart and what it lets pass still passes, before and after policies; with --allow-action ACCEPT what it
// keeps apart is open.
func TestManifestsKeepDockersIsolation(t *testing.T) {
	const apart = onlyOnBridge + " -out,nodes>other -web,db,mon,api,copy>other -other>web,db,mon,api,copy"
	alone := e2e.Wants{"tcp 80": apart, "udp 53": apart, "icmp": apart}
	versions := []struct {
		name  string
		rules rules
		// opens is what --allow-action ACCEPT opens. Answers to another network still are Docker's to drop, as version
		// 27 does.
		opens string
	}{{"Docker_27", docker27(), " +out,n2,api,copy>web,db,mon"},
		{"Docker_28", docker28(), " +other,out,n2,api,copy>web,db,mon"}}
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, v := range versions {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				w := e2e.New(t, backend, lab.Config{})
				addDockerNetwork(t, w, w.Node("node1"))
				for _, n := range w.Nodes() {
					restore(t, w, n, v.rules)
				}
				w.Expect(t, alone)
				m := w.FromManifests(t, e2e.Base())
				for _, n := range w.Nodes() {
					w.Daemons = append(w.Daemons, e2e.StartDaemon(t, n, "--manifests", m.Dir, "--pod-interface",
						dockerOwn))
				}
				for _, d := range w.Daemons {
					d.AwaitReady(t)
				}
				w.Expect(t, alone)
				for _, d := range w.Daemons {
					d.AwaitLine(t, 0, "the policy of FORWARD is DROP: what network policies allow")
				}
				w.Apply(t, w.Objects(e2e.Rich()))
				both := e2e.RichWants()
				for question := range both {
					both[question] += apart
				}
				w.Expect(t, both)

				d := w.DaemonOn(w.Node("node1"))
				d.Kill(t)
				d.Args = append(d.Args, "--allow-action", "ACCEPT")
				d.Start(t)
				d.AwaitReady(t)
				w.Apply(t, w.Objects(e2e.Base()))
				w.Expect(t, e2e.Wants{"tcp 80": apart + v.opens})
			})
		}
	})
}

// TestForwardPolicyWithoutAnAcceptingRule has a policy of FORWARD that drops, and no rule that accepts.
func TestForwardPolicyWithoutAnAcceptingRule(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		const drop rules = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"
		const warning = "the policy of FORWARD is DROP and no rule accepts.*--allow-action ACCEPT"
		m := w.FromManifests(t, e2e.Base())
		for _, n := range w.Nodes() {
			restore(t, w, n, drop)
			d := e2e.NewDaemon(n, "--manifests", m.Dir, "--pod-interface", "cni0", "--iptables-backend",
				string(backend))
			d.Log.Expect(warning)
			d.Start(t)
			d.EndWith(t)
			w.Daemons = append(w.Daemons, d)
			d.AwaitLine(t, 0, warning+".*IPv4")
			d.AwaitLine(t, 0, warning+".*IPv6")
			d.AwaitReady(t)
		}
		w.Expect(t, e2e.Wants{"tcp 80": "-*>*"})
	})
}
