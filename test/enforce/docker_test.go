package enforce

import (
	"net/netip"
	"strings"
	"testing"

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
func (w *harness) addDockerNetwork(t *testing.T, n *lab.Node) {
	t.Helper()
	addrs := []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("fd00:18::2")}
	p := w.addPod(t, n.Name(), "other", lab.PodConfig{Addrs: addrs})
	serve(t, p.Host)
	run(t, n.Host, "ip", "link", "add", dockerOther, "type", "bridge")
	for _, r := range n.PodRanges() { // the container's gateways
		single := netip.PrefixFrom(r.Addr().Next(), r.Addr().BitLen())
		run(t, n.Host, "ip", "address", "add", single.String(), "dev", dockerOther, "nodad")
	}
	run(t, n.Host, "ip", "link", "set", dockerOther, "up")
	run(t, n.Host, "ip", "link", "set", p.Port(), "master", dockerOther)
	for _, a := range addrs {
		run(t, n.Host, "ip", "route", "replace", a.String(), "dev", dockerOther)
	}
}

// TestManifestsKeepDockersIsolation starts weave-npc as README.md does on a host without Kubernetes. What Docker keeps
// apart stays apart and what it lets pass still passes, before and after policies; with --allow-action ACCEPT what it
// keeps apart is open.
func TestManifestsKeepDockersIsolation(t *testing.T) {
	const apart = onlyOnBridge + " -out,nodes>other -web,db,mon,api,copy>other -other>web,db,mon,api,copy"
	alone := wants{"tcp 80": apart, "udp 53": apart, "icmp": apart}
	versions := []struct {
		name  string
		rules rules
		// opens is what --allow-action ACCEPT opens. Answers to another network still are Docker's to drop, as version
		// 27 does.
		opens string
	}{{"Docker_27", docker27(), " +out,n2,api,copy>web,db,mon"}, {"Docker_28", docker28(), " +other,out,n2,api,copy>web,db,mon"}}
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, v := range versions {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				w := newHarness(t, backend, lab.Config{})
				w.addDockerNetwork(t, w.Node("node1"))
				for _, n := range w.Nodes() {
					w.restore(t, n, v.rules)
				}
				w.expect(t, alone)
				m := w.fromManifests(t, base())
				for _, n := range w.Nodes() {
					w.daemons = append(w.daemons, startDaemon(t, n, "--manifests", m.dir, "--pod-interface", dockerOwn))
				}
				for _, d := range w.daemons {
					d.awaitReady(t)
				}
				w.expect(t, alone)
				for _, d := range w.daemons {
					d.awaitLine(t, 0, "the policy of FORWARD is DROP: what network policies allow")
				}
				w.apply(t, w.objects(rich()))
				both := richWants()
				for question := range both {
					both[question] += apart
				}
				w.expect(t, both)

				d := w.daemonOn(w.Node("node1"))
				d.kill(t)
				d.args = append(d.args, "--allow-action", "ACCEPT")
				d.start(t)
				d.awaitReady(t)
				w.apply(t, w.objects(base()))
				w.expect(t, wants{"tcp 80": apart + v.opens})
			})
		}
	})
}

// TestForwardPolicyWithoutAnAcceptingRule has a policy of FORWARD that drops, and no rule that accepts.
func TestForwardPolicyWithoutAnAcceptingRule(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		const drop rules = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"
		const warning = "the policy of FORWARD is DROP and no rule accepts.*--allow-action ACCEPT"
		m := w.fromManifests(t, base())
		for _, n := range w.Nodes() {
			w.restore(t, n, drop)
			d := newDaemon(n, "--manifests", m.dir, "--pod-interface", "cni0", "--iptables-backend", string(backend))
			d.log.expect(warning)
			d.start(t)
			d.endWith(t)
			w.daemons = append(w.daemons, d)
			d.awaitLine(t, 0, warning+".*IPv4")
			d.awaitLine(t, 0, warning+".*IPv6")
			d.awaitReady(t)
		}
		w.expect(t, wants{"tcp 80": "-*>*"})
	})
}
