package node

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// rules are what others have in a node's tables, as iptables-restore reads it, the same for both families. In them $web
// is the address of a pod, $service1 that of a Service, $pods the range of all pods and $prohibited an ICMP error.
type rules string

// kubeProxyServices returns the destinations of kube-proxy's Services. Each has port 8080, and as many as there are
// node ports after 30080.
func kubeProxyServices() []string { return []string{"web:80", "api:80", "api:81", "mon:80", "copy:80"} }

// kubeProxyIPTables returns kube-proxy's chains in iptables mode, without its jumps from FORWARD.
func kubeProxyIPTables() rules {
	var b strings.Builder
	b.WriteString(`*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
`)
	for i, s := range kubeProxyServices() {
		n := strconv.Itoa(i + 1)
		pod, port, _ := strings.Cut(s, ":")
		b.WriteString(strings.NewReplacer("@NODEPORT", strconv.Itoa(30081+i), "@N", n, "@PORT", port, "@POD",
			"$"+pod).Replace(`
:KUBE-SVC-@N - [0:0]
:KUBE-EXT-@N - [0:0]
:KUBE-SEP-@N - [0:0]
-A KUBE-SERVICES -d $service@N/$bits -p tcp -m tcp --dport 8080 -j KUBE-SVC-@N
-A KUBE-NODEPORTS -p tcp -m tcp --dport @NODEPORT -j KUBE-EXT-@N
-A KUBE-EXT-@N -m comment --comment "masquerade traffic for external destinations" -j KUBE-MARK-MASQ
-A KUBE-EXT-@N -j KUBE-SVC-@N
-A KUBE-SVC-@N ! -s $pods -d $service@N/$bits -p tcp -m tcp --dport 8080 -j KUBE-MARK-MASQ
-A KUBE-SVC-@N -j KUBE-SEP-@N
-A KUBE-SEP-@N -s @POD/$bits -j KUBE-MARK-MASQ
-A KUBE-SEP-@N -p tcp -m tcp -j DNAT --to-destination [@POD]:@PORT
`))
	}
	b.WriteString(`-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
COMMIT
*filter
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A INPUT -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`)
	return rules(b.String())
}

// kubeProxyForwards are these jumps. kube-proxy puts those that it misses before all others.
const kubeProxyForwards rules = `*filter
-I FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-I FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-I FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-I FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
COMMIT
`

// kubeProxyNFTables returns kube-proxy's table of a family in nftables mode.
func kubeProxyNFTables() string {
	var services, ports, chains strings.Builder
	for i, s := range kubeProxyServices() {
		n := strconv.Itoa(i + 1)
		pod, port, _ := strings.Cut(s, ":")
		put := strings.NewReplacer("@NODEPORT", strconv.Itoa(30081+i), "@N", n, "@PORT", port, "@POD", "$"+pod)
		services.WriteString(put.Replace("$service@N . tcp . 8080 : goto service-@N,"))
		ports.WriteString(put.Replace("tcp . @NODEPORT : goto external-@N,"))
		chains.WriteString(put.Replace(`
	chain endpoint-@N {
		$ip saddr @POD jump mark-for-masquerade
		meta l4proto tcp dnat to [@POD]:@PORT
	}
	chain service-@N {
		$ip daddr $service@N tcp dport 8080 $ip saddr != $pods jump mark-for-masquerade
		goto endpoint-@N
	}
	chain external-@N {
		jump mark-for-masquerade
		goto service-@N
	}`))
	}
	return `table $ip kube-proxy {
	map service-ips {
		type $type . inet_proto . inet_service : verdict
	}
	map service-nodeports {
		type inet_proto . inet_service : verdict
	}
	chain mark-for-masquerade {
		meta mark set meta mark or 0x4000
	}
	chain masquerading {
		meta mark and 0x4000 == 0 return
		meta mark set meta mark xor 0x4000
		masquerade fully-random
	}` + chains.String() + `
	chain services {
		$ip daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local meta l4proto . th dport vmap @service-nodeports
	}
	chain cluster-ips-check {
		$ip daddr $services counter reject
	}
	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}
	chain nat-output {
		type nat hook output priority -100; policy accept;
		jump services
	}
	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		jump masquerading
	}
	chain filter-forward {
		type filter hook forward priority -110; policy accept;
		ct state new jump cluster-ips-check
	}
	chain filter-output-post-dnat {
		type filter hook output priority -90; policy accept;
		ct state new jump cluster-ips-check
	}
}
add element $ip kube-proxy service-ips { ` + services.String() + ` }
add element $ip kube-proxy service-nodeports { ` + ports.String() + ` }
`
}

// docker are Docker's chains on a node whose FORWARD has come to drop by them.
const docker rules = `*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s $docker ! -o docker0 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
COMMIT
`

// dockerRestarts puts Docker's jumps before all others, and so does an administrator's ACCEPT for what is denied get
// there.
const dockerRestarts rules = `*filter
-A DOCKER-USER -p tcp -m tcp --dport 80 -j ACCEPT
-D FORWARD -j DOCKER-ISOLATION-STAGE-1
-I FORWARD -j DOCKER-ISOLATION-STAGE-1
-D FORWARD -j DOCKER-USER
-I FORWARD -j DOCKER-USER
COMMIT
`

// flannel accepts what pods send and get, as a CNI does on such a node.
const flannel rules = `*filter
:FLANNEL-FWD - [0:0]
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A FLANNEL-FWD -s $pods -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d $pods -m comment --comment "flanneld forward" -j ACCEPT
COMMIT
`

// administrator drops port 81 where Docker asks for an administrator's rules.
const administrator rules = `*filter
-A DOCKER-USER -p tcp -m tcp --dport 81 -j DROP
COMMIT
`

// firewalld are firewalld's chains in iptables: what does not come from the pods' bridge is rejected.
const firewalld rules = `*filter
:FORWARD_direct - [0:0]
:FORWARD_IN_ZONES - [0:0]
:FORWARD_OUT_ZONES - [0:0]
:FWDI_trusted - [0:0]
:FWDI_public - [0:0]
:FORWARD DROP [0:0]
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT
-A FORWARD -i lo -j ACCEPT
-A FORWARD -j FORWARD_direct
-A FORWARD -j FORWARD_IN_ZONES
-A FORWARD -j FORWARD_OUT_ZONES
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -j REJECT --reject-with $prohibited
-A FORWARD_IN_ZONES -i cni0 -g FWDI_trusted
-A FORWARD_IN_ZONES -i eth0 -g FWDI_public
-A FORWARD_IN_ZONES -g FWDI_public
-A FWDI_trusted -j ACCEPT
COMMIT
`

// firewalldNFTables is firewalld's table in nftables, which decides after iptables, whatever that decided.
const firewalldNFTables = `table inet firewalld {
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_FORWARD_IN_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_FORWARD_IN_ZONES {
		iifname "cni0" goto filter_FWD_trusted
		goto filter_FWD_public
	}
	chain filter_FWD_trusted {
		accept
	}
	chain filter_FWD_public {
		icmpv6 type { nd-neighbor-advert, nd-neighbor-solicit, nd-router-advert } accept
	}
}
`

// nothing makes the table that iptables makes when it is first asked.
const nothing rules = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"

// nflog reports what passes, to other programs than weave-npc's.
const nflog rules = `*filter
:FLOWS - [0:0]
-A FORWARD -j FLOWS
-A FLOWS -m conntrack --ctstate NEW -j NFLOG --nflog-group 86 --nflog-prefix "flow" --nflog-threshold 1
-A INPUT -p tcp -m tcp --dport 80 -j NFLOG --nflog-group 5 --nflog-prefix "flow"
COMMIT
`

// neighbourly puts what rules name into a text, for a family.
func neighbourly(w *e2e.Cluster, family int, text string) string {
	pairs := []string{"$pods", "10.32.0.0/12", "$docker", "172.17.0.0/16", "$bits", "32", "$prohibited",
		"icmp-host-prohibited",
		"$services", "10.96.0.0/12", "$type", "ipv4_addr", "$ip", "ip", "$inet", "inet"}
	if family == 6 {
		pairs = []string{"$pods", "fd10:32::/48", "$docker", "fd00:d0c::/64", "$bits", "128", "$prohibited",
			"icmp6-adm-prohibited",
			"$services", "fd10:96::/112", "$type", "ipv6_addr", "$ip", "ip6", "$inet", "inet6"}
	}
	for i := range kubeProxyServices() {
		pairs = append([]string{"$service" + strconv.Itoa(i+1), e2e.ServiceAddr(family, byte(i+1), 0).Addr().String()},
			pairs...)
	}
	for name, h := range w.Hosts {
		if a := h.Addr(family); a.IsValid() {
			if family == 4 {
				pairs = append(pairs, "[$"+name+"]", a.String())
			}
			pairs = append(pairs, "$"+name, a.String())
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// restore adds others' rules to a node, of both families, and leaves the existing rules.
func restore(t *testing.T, w *e2e.Cluster, n *lab.Node, text rules) {
	t.Helper()
	if text == "" {
		return
	}
	e2e.EachFamily(func(family int) {
		program := "iptables-"
		if family == 6 {
			program = "ip6tables-"
		}
		e2e.Feed(t, n, neighbourly(w, family, string(text)), program+string(w.Backend)+"-restore", "--noflush",
			"--wait")
	})
}

// owned matches the lines of a snapshot that are about what weave-npc owns.
var owned = regexp.MustCompile(`WEAVE-NPC|(^| )weave-(local-pods|pod-range|behind-uplinks|broadcast|alive|unattended|default-allow-(in|e)gress|fail-closed-(in|e)gress|[a-z2-7]{25})(-v6)?( |$)`)

// foreignState returns what others have in a node's tables and sets. Tables are what others have in nftables.
func foreignState(t *testing.T, n *lab.Node, tables []string) string {
	t.Helper()
	text, _, _ := strings.Cut(e2e.Snapshot(t, n), "# nft list ruleset bridge")
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !owned.MatchString(strings.TrimSuffix(line, "\n")) {
			b.WriteString(line)
		}
	}
	for _, table := range tables {
		b.WriteString(e2e.Saved(t, n, "nft", append([]string{"--stateless", "list", "table"},
			strings.Fields(table)...)...))
	}
	return b.String()
}

// serviceOn returns a Service's address, or a node's with its port, of kubeProxyServices.
func serviceOn(t *testing.T, w *e2e.Cluster, family int, leads, node string) netip.AddrPort {
	t.Helper()
	for i, s := range kubeProxyServices() {
		if s != leads {
			continue
		}
		if node == "" {
			return e2e.ServiceAddr(family, byte(i+1), 8080)
		}
		return netip.AddrPortFrom(w.Hosts[node].Addr(family), uint16(30081+i))
	}
	t.Fatalf("no Service leads to %s", leads)
	return netip.AddrPort{}
}
