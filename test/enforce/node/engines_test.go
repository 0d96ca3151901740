package node

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// engine is another policy engine, whose rules for the policies of moving are on a node.
type engine struct {
	name   string
	attach lab.Attach
	// install writes its rules and sets, its jumps before all others.
	install func(t *testing.T, w *e2e.Cluster, n *lab.Node)
	// again is what it does now and then: it puts its jumps first once more.
	again func(t *testing.T, w *e2e.Cluster, n *lab.Node)
	// remove is how its own programs remove what it has written.
	remove func(t *testing.T, w *e2e.Cluster, n *lab.Node)
}

// moving returns the policies that both engines enforce: web may be reached by db and from outside and may reach ops,
// copy may be reached by web.
func moving() e2e.Change {
	return e2e.Do(e2e.Base(), e2e.Policy("shop/web", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}, {ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}]
egress:
- to: [{namespaceSelector: {matchLabels: {team: b}}}]`), e2e.Policy("ops/copy", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}]`))
}

// engineSet is a set of another engine: the pods or the addresses that it holds, and whether these are ranges.
type engineSet struct {
	name    string
	members []string
	ranges  bool
}

// enginePolicy is a policy as another engine has it: the sets of the sources that may reach its pods, and of the
// destinations that its pods may reach. Nil is a direction that it does not isolate.
type enginePolicy struct {
	name, pod string
	in, out   []engineSet
}

func enginePolicies() []enginePolicy {
	return []enginePolicy{
		{name: "shop/web", pod: "web",
			in: []engineSet{{name: "shop/web in 0", members: []string{"$db"}},
				{name: "shop/web in 1", members: []string{"$outside"}, ranges: true}},
			out: []engineSet{{name: "shop/web out 0", members: []string{"$mon", "$copy"}}}},
		{name: "ops/copy", pod: "copy", in: []engineSet{{name: "ops/copy in 0", members: []string{"$web"}}}},
	}
}

// policyOf returns the policy of a pod; nil if it has none.
func policyOf(pod string) *enginePolicy {
	for _, p := range enginePolicies() {
		if p.pod == pod {
			return &p
		}
	}
	return nil
}

// digest returns a name as these engines make them from longer ones.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// podsOn returns the pods of a node by their short names.
func podsOn(w *e2e.Cluster, n *lab.Node) []string {
	var pods []string
	for _, name := range slices.Sorted(maps.Keys(w.Hosts)) {
		if w.NodeOf(w.Hosts[name]) == n {
			pods = append(pods, name)
		}
	}
	return pods
}

// write gives a node sets and rules of a family each.
func write(t *testing.T, w *e2e.Cluster, n *lab.Node, family int, sets, rules string) {
	t.Helper()
	outside := map[int]string{4: "192.0.2.0/24", 6: "2001:db8::/32"}[family]
	sets = strings.ReplaceAll(sets, "$outside", outside)
	e2e.Feed(t, n, neighbourly(w, family, sets), "ipset", "restore", "-exist")
	e2e.Feed(t, n, neighbourly(w, family, rules), program(w, family)+"-restore", "--noflush", "--wait")
}

// program returns the name of iptables for a family.
func program(w *e2e.Cluster, family int) string {
	return map[int]string{4: "iptables-", 6: "ip6tables-"}[family] + string(w.Backend)
}

// kubeRouter returns kube-router's policy engine.
func kubeRouter() engine {
	return engine{name: "kube-router", attach: lab.Bridge,
		install: func(t *testing.T, w *e2e.Cluster, n *lab.Node) {
			t.Helper()
			e2e.EachFamily(func(family int) {
				var sets, rules, tail strings.Builder
				rules.WriteString(kubeRouterTop(family))
				for _, pod := range podsOn(w, n) {
					kubeRouterPod(&sets, &rules, &tail, pod, family)
				}
				for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
					fmt.Fprintf(&tail, "-A KUBE-ROUTER-%s -m comment --comment \"rule to explicitly ACCEPT traffic that comply to network policies\""+
						" -m mark --mark 0x20000/0x20000 -j ACCEPT\n", chain)
				}
				write(t, w, n, family, sets.String(), rules.String()+tail.String()+"COMMIT\n")
			})
		},
		again: func(t *testing.T, w *e2e.Cluster, n *lab.Node) {
			t.Helper()
			e2e.EachFamily(func(family int) {
				program := program(w, family)
				jump := strings.Fields("FORWARD -m comment --comment kube-router-netpol -j KUBE-ROUTER-FORWARD")
				e2e.Run(t, n.Host, program, append([]string{"-w", "-I"}, jump...)...)
				rules := regexp.MustCompile(`(?m)^-A .*$`).FindAllString(e2e.Run(t, n.Host, program, "-w", "-S",
					"FORWARD"), -1)
				for i, rule := range slices.Backward(rules) {
					if strings.Contains(rule, "KUBE-ROUTER-FORWARD") { // the one that was there
						e2e.Run(t, n.Host, program, "-w", "-D", "FORWARD", strconv.Itoa(i+1))
						break
					}
				}
				// The whole table as it was a moment ago.
				e2e.Feed(t, n, e2e.Saved(t, n, program+"-save", "-t", "filter"), program+"-restore", "--wait", "-T",
					"filter")
			})
		},
		remove: func(t *testing.T, w *e2e.Cluster, n *lab.Node) {
			t.Helper()
			own := regexp.MustCompile(`(?m)^.*KUBE-(ROUTER-(INPUT|FORWARD|OUTPUT)|POD-FW|NWPLCY).*\n`)
			e2e.EachFamily(func(family int) {
				rest := own.ReplaceAllString(e2e.Saved(t, n, program(w, family)+"-save", "-t", "filter"), "")
				e2e.Feed(t, n, rest, program(w, family)+"-restore", "--wait", "-T", "filter")
			})
			for _, set := range regexp.MustCompile(`(?m)^(inet6:)?KUBE-(SRC|DST)-.*$`).FindAllString(e2e.Saved(t, n,
				"ipset", "list", "-n"), -1) {
				e2e.Run(t, n.Host, "ipset", "destroy", set)
			}
		},
	}
}

// kubeRouterTop returns the chains that every node has.
func kubeRouterTop(family int) string {
	icmp, types := "icmp -m icmp --icmp-type", []string{"8", "3", "11"}
	if family == 6 {
		icmp, types = "ipv6-icmp -m icmp6 --icmpv6-type", []string{"128", "1", "3", "135", "136", "129"}
	}
	var b strings.Builder
	b.WriteString("*filter\n")
	for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		fmt.Fprintf(&b, ":KUBE-ROUTER-%s - [0:0]\n-I %s -m comment --comment kube-router-netpol -j KUBE-ROUTER-%s\n",
			chain, chain, chain)
	}
	b.WriteString(`:KUBE-NWPLCY-DEFAULT - [0:0]
:KUBE-NWPLCY-COMMON - [0:0]
-A KUBE-ROUTER-INPUT -d $services -m comment --comment "allow traffic to primary cluster IP range" -j RETURN
-A KUBE-ROUTER-INPUT -p tcp -m addrtype --dst-type LOCAL -m multiport --dports 30000:32767 -j RETURN
-A KUBE-ROUTER-INPUT -p udp -m addrtype --dst-type LOCAL -m multiport --dports 30000:32767 -j RETURN
-A KUBE-NWPLCY-DEFAULT -m comment --comment "rule to mark traffic matching a network policy" -j MARK --set-xmark 0x10000/0x10000
-A KUBE-NWPLCY-COMMON -m comment --comment "rule to drop invalid state for pod" -m conntrack --ctstate INVALID -j DROP
-A KUBE-NWPLCY-COMMON -m comment --comment "rule for stateful firewall for pod" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
`)
	for _, number := range types {
		fmt.Fprintf(&b, "-A KUBE-NWPLCY-COMMON -p %s %s -j ACCEPT\n", icmp, number)
	}
	return b.String()
}

// kubeRouterPod writes a pod's chain, and those and the sets of its policy.
func kubeRouterPod(sets, rules, tail *strings.Builder, pod string, family int) {
	prefix, inet := "", "inet"
	if family == 6 {
		prefix, inet = "inet6:", "inet6"
	}
	set := func(kind, of string, s engineSet) string {
		name, how := prefix+"KUBE-"+kind+"-"+digest(of), "hash:ip"
		if s.ranges {
			how = "hash:net"
		}
		fmt.Fprintf(sets, "create %s %s family %s timeout 0\n", name, how, inet)
		for _, m := range s.members {
			fmt.Fprintf(sets, "add %s %s timeout 0\n", name, m)
		}
		return name
	}
	chain := "KUBE-POD-FW-" + digest(pod)
	fmt.Fprintf(rules, ":%s - [0:0]\n-A %s -m comment --comment \"run through common network policy chain\" -j KUBE-NWPLCY-COMMON\n", chain, chain)
	fmt.Fprintf(rules, "-A %s -d $%s/$bits -m addrtype --src-type LOCAL -j ACCEPT\n", chain, pod)
	p := policyOf(pod)
	var own string
	if p != nil {
		own = "KUBE-NWPLCY-" + digest(p.name)
		fmt.Fprintf(rules, ":%s - [0:0]\n", own)
		to := set("DST", p.name+" target", engineSet{members: []string{"$" + pod}})
		from := set("SRC", p.name+" target", engineSet{members: []string{"$" + pod}})
		allow := func(source, destination string) {
			match := "-m set --match-set " + source + " src -m set --match-set " + destination + " dst"
			fmt.Fprintf(rules, "-A %s %s -j MARK --set-xmark 0x10000/0x10000\n", own, match)
			fmt.Fprintf(rules, "-A %s %s -m mark --mark 0x10000/0x10000 -j RETURN\n", own, match)
		}
		for _, s := range p.in {
			allow(set("SRC", s.name, s), to)
		}
		for _, s := range p.out {
			allow(from, set("DST", s.name, s))
		}
		fmt.Fprintf(rules, "-A %s -m comment --comment \"run through nw policy\" -j %s\n", chain, own)
	}
	if p == nil || p.out == nil {
		fmt.Fprintf(rules, "-A %s -s $%s/$bits -m comment --comment \"run through default egress chain\" -j KUBE-NWPLCY-DEFAULT\n", chain, pod)
	}
	if p == nil || p.in == nil {
		fmt.Fprintf(rules, "-A %s -d $%s/$bits -m comment --comment \"run through default ingress chain\" -j KUBE-NWPLCY-DEFAULT\n", chain, pod)
	}
	unmarked := "-m mark ! --mark 0x10000/0x10000"
	fmt.Fprintf(rules, "-A %s %s -m limit --limit 10/min --limit-burst 10 -j NFLOG --nflog-group 100\n", chain,
		unmarked)
	fmt.Fprintf(rules, "-A %s %s -j REJECT\n", chain, unmarked)
	fmt.Fprintf(rules, "-A %s -j MARK --set-xmark 0x0/0x10000\n-A %s -j MARK --set-xmark 0x20000/0x20000\n", chain,
		chain)
	for _, match := range []string{"FORWARD -m physdev --physdev-is-bridged -d", "FORWARD -d", "OUTPUT -d", "INPUT -s",
		"FORWARD -s", "OUTPUT -s",
		"FORWARD -m physdev --physdev-is-bridged -s"} {
		fmt.Fprintf(tail, "-A KUBE-ROUTER-%s $%s/$bits -j %s\n", match, pod, chain)
	}
}

// felix returns Calico's policy engine, in iptables mode.
func felix() engine {
	const jump = `-m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD`
	return engine{name: "Calico", attach: lab.Routed,
		install: func(t *testing.T, w *e2e.Cluster, n *lab.Node) {
			t.Helper()
			e2e.EachFamily(func(family int) {
				var sets, rules, from, to strings.Builder
				rules.WriteString(felixTop(jump))
				for _, pod := range podsOn(w, n) {
					port := w.Veths[pod]
					fmt.Fprintf(&from, "-A cali-from-wl-dispatch -i %s -m comment --comment \"cali:%s\" -g cali-fw-%s\n", port, digest("from"+port), port)
					fmt.Fprintf(&to, "-A cali-to-wl-dispatch -o %s -m comment --comment \"cali:%s\" -g cali-tw-%s\n",
						port, digest("to"+port), port)
					felixPod(&sets, &rules, pod, port, family)
				}
				for _, direction := range []string{"from", "to"} {
					fmt.Fprintf(&to, "-A cali-%s-wl-dispatch -m comment --comment \"cali:%s\" -m comment --comment \"Unknown interface\" -j DROP\n",
						direction, digest(direction))
				}
				write(t, w, n, family, sets.String(), rules.String()+from.String()+to.String()+"COMMIT\n")
			})
		},
		again: func(t *testing.T, w *e2e.Cluster, n *lab.Node) {
			t.Helper()
			restore(t, w, n, rules("*filter\n-D FORWARD "+jump+"\n-I FORWARD "+jump+"\nCOMMIT\n"))
		},
		// Chain by chain, and empty chains and sets stay.
		remove: func(t *testing.T, w *e2e.Cluster, n *lab.Node) {
			t.Helper()
			e2e.EachFamily(func(family int) {
				for _, table := range []string{"nat", "raw", "mangle", "filter"} {
					text := e2e.Saved(t, n, program(w, family)+"-save", "-t", table)
					for _, chain := range regexp.MustCompile(`(?m)-[jg] (cali-\S+)`).FindAllStringSubmatch(text, -1) {
						e2e.Run(t, n.Host, program(w, family), "-w", "-t", table, "-F", chain[1])
					}
					for _, rule := range regexp.MustCompile(`(?m)^-A ([A-Z]+ .*--comment "cali:.*)$`).FindAllStringSubmatch(text, -1) {
						e2e.Feed(t, n, "*"+table+"\n-D "+rule[1]+"\nCOMMIT\n", program(w, family)+"-restore",
							"--noflush", "--wait")
					}
				}
			})
		},
	}
}

// felixTop returns the chains that every node has.
func felixTop(jump string) string {
	return `*raw
:cali-PREROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
-I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A cali-PREROUTING -m comment --comment "cali:XFX5xbM8B9qR10JG" -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i veth+ -m comment --comment "cali:EWMPb0zVROM-woQp" -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m comment --comment "cali:PWuxTAIaFCtsg5Qa" -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
-A cali-PREROUTING -m comment --comment "cali:HSiUQz3wlzW3Zd2S" -m mark --mark 0x0/0x40000 -j cali-from-host-endpoint
-A cali-PREROUTING -m comment --comment "cali:z2J7QgfQMkgHqRgI" -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
*mangle
:cali-PREROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
-I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A cali-PREROUTING -m comment --comment "cali:6BJqBjBC7crtA-7-" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m comment --comment "cali:KX7AGNd6rMcDUai6" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-PREROUTING -m comment --comment "cali:wNH7KsA3ILKJBsY9" -j cali-from-host-endpoint
COMMIT
*nat
:cali-PREROUTING - [0:0]
:cali-POSTROUTING - [0:0]
:cali-fip-dnat - [0:0]
:cali-nat-outgoing - [0:0]
-I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-I POSTROUTING -m comment --comment "cali:O3lYWMrLQYEMJtB5" -j cali-POSTROUTING
-A cali-PREROUTING -m comment --comment "cali:r6XmIziWUJsdOK6Z" -j cali-fip-dnat
-A cali-POSTROUTING -m comment --comment "cali:nYKhEzDlr11Jccal" -j cali-nat-outgoing
COMMIT
*filter
:cali-FORWARD - [0:0]
:cali-INPUT - [0:0]
:cali-OUTPUT - [0:0]
:cali-wl-to-host - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-to-wl-dispatch - [0:0]
:cali-from-hep-forward - [0:0]
:cali-to-hep-forward - [0:0]
:cali-cidr-block - [0:0]
:cali-pri-kns - [0:0]
:cali-pro-kns - [0:0]
-I FORWARD ` + jump + `
-A FORWARD -m comment --comment "cali:S93hcgKJrXEqnTfs" -m comment --comment "Policy explicitly accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT
-A FORWARD -m comment --comment "cali:mp77cMpurHhyjLrM" -j MARK --set-xmark 0x10000/0x10000
-I INPUT -m comment --comment "cali:Cz_u1IQiXIMmKD4c" -j cali-INPUT
-I OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-A cali-FORWARD -m comment --comment "cali:vjrMJCRpqwy5oRoX" -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -m comment --comment "cali:A_sPAO0mcxbT9mOV" -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
-A cali-FORWARD -i veth+ -m comment --comment "cali:8ZoYfO5HKXWbB3pk" -j cali-from-wl-dispatch
-A cali-FORWARD -o veth+ -m comment --comment "cali:jdEuaPBe14V2hutn" -j cali-to-wl-dispatch
-A cali-FORWARD -m comment --comment "cali:12bc6HljsMKsmfr-" -j cali-to-hep-forward
-A cali-FORWARD -m comment --comment "cali:NOSxoaGx8OIstr1z" -j cali-cidr-block
-A cali-INPUT -i veth+ -m comment --comment "cali:H03xYXARh4e8pwd4" -g cali-wl-to-host
-A cali-INPUT -m comment --comment "cali:hder3ARWznqqv8Va" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-wl-to-host -m comment --comment "cali:MEmlbCdco0Fefcrw" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-wl-to-host -m comment --comment "cali:Q2b2iY2M-vmds5iY" -m comment --comment "Configured DefaultEndpointToHostAction" -j RETURN
-A cali-OUTPUT -m comment --comment "cali:Mq1_rAdXXH3YkrzW" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -o veth+ -m comment --comment "cali:69FkRTJDvD5Vu6Vl" -j RETURN
-A cali-pri-kns -m comment --comment "cali:K4jTheHkmPnRKJpp" -j MARK --set-xmark 0x10000/0x10000
-A cali-pri-kns -m comment --comment "cali:_UCrjWldmFR3jSBk" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-pro-kns -m comment --comment "cali:R8F0l7IjPYOuy8nG" -j MARK --set-xmark 0x10000/0x10000
-A cali-pro-kns -m comment --comment "cali:HVEEtYPJsiGRXCIt" -m mark --mark 0x10000/0x10000 -j RETURN
`
}

// felixPod writes the two chains of a pod's interface, and those and the sets of its policy.
func felixPod(sets, rules *strings.Builder, pod, port string, family int) {
	p := policyOf(pod)
	for _, direction := range []struct {
		letter, end string
		isolates    bool
		peers       []engineSet
	}{
		{"i", "src", p != nil && p.in != nil, p.peers(true)},
		{"o", "dst", p != nil && p.out != nil, p.peers(false)},
	} {
		chain := map[string]string{"i": "cali-tw-", "o": "cali-fw-"}[direction.letter] + port
		number := 0
		put := func(chain, rule string) {
			number++
			fmt.Fprintf(rules, "-A %s -m comment --comment \"cali:%s\" %s\n", chain, digest(fmt.Sprint(chain, number)),
				rule)
		}
		fmt.Fprintf(rules, ":%s - [0:0]\n", chain)
		put(chain, "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
		put(chain, "-m conntrack --ctstate INVALID -j DROP")
		put(chain, "-j MARK --set-xmark 0x0/0x10000")
		if direction.isolates {
			policy := "cali-p" + direction.letter + "-_" + digest(p.name)
			put(chain, `-m comment --comment "Start of policies" -j MARK --set-xmark 0x0/0x20000`)
			fmt.Fprintf(rules, ":%s - [0:0]\n", policy)
			put(chain, "-m mark --mark 0x0/0x20000 -j "+policy)
			put(chain, `-m comment --comment "Return if policy accepted" -m mark --mark 0x10000/0x10000 -j RETURN`)
			put(chain, `-m comment --comment "Drop if no policies passed packet" -m mark --mark 0x0/0x20000 -j DROP`)
			for _, s := range direction.peers {
				name := fmt.Sprintf("cali%d0s:%s", family, digest(s.name))
				fmt.Fprintf(sets, "create %s hash:net family $inet maxelem 1048576\n", name)
				for _, m := range s.members {
					fmt.Fprintf(sets, "add %s %s\n", name, m)
				}
				put(policy, "-m set --match-set "+name+" "+direction.end+" -j MARK --set-xmark 0x10000/0x10000")
				put(policy, "-m mark --mark 0x10000/0x10000 -j RETURN")
			}
		}
		put(chain, "-j cali-pr"+direction.letter+"-kns")
		put(chain, `-m comment --comment "Return if profile accepted" -m mark --mark 0x10000/0x10000 -j RETURN`)
		put(chain, `-m comment --comment "Drop if no profiles matched" -j DROP`)
	}
}

// peers returns the peers of a rule in a direction.
func (p *enginePolicy) peers(in bool) []engineSet {
	switch {
	case p == nil:
		return nil
	case in:
		return p.in
	default:
		return p.out
	}
}
