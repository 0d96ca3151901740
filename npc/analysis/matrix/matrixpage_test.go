package matrix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// dataOf returns what the page's script reads.
func dataOf(t *testing.T, page string) (d document) {
	t.Helper()
	found := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(page)
	if found == nil {
		t.Fatal("there are no data")
	}
	if err := json.Unmarshal([]byte(found[1]), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func write(t *testing.T, w *cluster.Cluster, o PageOptions) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := WritePage(&b, w.View(), o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// shop has a pod for each of some names.
func shop(names ...string) *cluster.Cluster {
	w := cluster.New()
	w.SetNamespace(fixture.Namespace("shop"))
	for i, name := range names {
		w.SetPod(fixture.Pod(fmt.Sprintf("shop/%[1]s node1 10.32.1.%[2]d app=%[1]s http:%[3]d", name, i+2, 8080+i)))
	}
	return w
}

// TestServices shows which ports the page distinguishes. Ports that the same items of rules match are one.
func TestServices(t *testing.T) {
	for _, c := range []struct{ name, ports, want string }{
		{"no port", "", "icmp; sctp, every port; tcp, every port; udp, every port"},
		{"a number", "{port: 80}", "icmp; sctp, every port; tcp, every other port; tcp/80; udp, every port"},
		{"the first port", "{port: 1}", "icmp; sctp, every port; tcp/1; tcp/2-65535; udp, every port"},
		{"all ports of a protocol", "{protocol: UDP}", "icmp; sctp, every port; tcp, every port; udp, every port"},
		{"ranges", "{port: 100, endPort: 199}, {port: 150, endPort: 300}",
			"icmp; sctp, every port; tcp, every other port; tcp/100-149; tcp/150-199; tcp/200-300; udp, every port"},
		{"a name", "{port: http}", "icmp; sctp, every port; tcp, every other port; tcp/8080; tcp/8081; udp, every port"},
		{"some ranges in one item", "{port: 10, endPort: 50}, {port: 20}, {port: 30}, {port: 40}, {port: 60}",
			"icmp; sctp, every port; tcp, every other port; tcp/10-19,21-29,31-39 and 1 more ranges; tcp/20; tcp/30; tcp/40; tcp/60; udp, every port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := shop("a", "b")
			w.SetPolicy(fixture.Policy(t, "shop/p", "{podSelector: {}, ingress: [{ports: ["+c.ports+"]}]}"))
			var got []string
			for _, s := range dataOf(t, write(t, w, PageOptions{AllPorts: true})).Services {
				got = append(got, s.Text)
				if asked, err := flow.ParseService(s.Asked); err != nil || len(s.Ranges) > 0 && asked.Port != s.Ranges[0][0] {
					t.Errorf("%s is asked as %s: %v", s.Text, s.Asked, err)
				}
			}
			slices.Sort(got)
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("distinguishes %s,\nnot           %s", text, c.want)
			}
		})
	}
}

// TestAnAddressThatIsAskedForIsItsOwn gives the page the address that would stand for the outside.
func TestAnAddressThatIsAskedForIsItsOwn(t *testing.T) {
	w := cluster.New()
	w.SetPod(fixture.Pod("shop/web 10.32.1.2"))
	w.SetClusterPolicy(fixture.ClusterPolicy(t, "names", "{tier: Admin, priority: 1, subject: {namespaces: {}}, "+
		"egress: [{action: Accept, to: [{domainNames: [a.x.org]}]}]}"))
	var got []string
	for _, r := range dataOf(t, write(t, w, PageOptions{AllPorts: true, Options: Options{Addresses: []string{"2.0.0.1"}}})).Rows {
		got = append(got, r.Name)
	}
	if text := strings.Join(got, " "); text != "shop/web 2.0.0.1 outside a.x.org" {
		t.Errorf("rows and columns are %s", text)
	}
}

// TestRowsOfWorkloads shows what rows are called.
func TestRowsOfWorkloads(t *testing.T) {
	for _, c := range []struct {
		name string
		pods []string // the facts of web-0, web-1 and so on
		want string
	}{
		{"a workload", []string{"app=x Deployment/web", "app=x Deployment/web"}, "shop/web (2 pods)"},
		{"none", []string{"app=x", "app=x"}, "shop/web-* (2 pods)"},
		{"one pod", []string{"app=x Deployment/web"}, "shop/web-0"},
		{"two workloads alike", []string{"app=x Deployment/web", "app=x Deployment/other"}, "shop/web-* (2 pods)"},
		{"two kinds of one workload", []string{"app=x Deployment/web", "app=x Deployment/web", "app=y Deployment/web", "app=y Deployment/web"},
			"shop/web-0 and 1 more; shop/web-2 and 1 more"},
		{"two workloads of one name", []string{"app=x Deployment/web", "app=x Deployment/web", "app=y Job/web", "app=y Job/web"},
			"shop/web-0 and 1 more; shop/web-2 and 1 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := cluster.New()
			for i, facts := range c.pods {
				w.SetPod(fixture.Pod(fmt.Sprintf("shop/web-%d 10.32.1.%d %s", i, i+2, facts)))
			}
			var got []string
			for _, r := range dataOf(t, write(t, w, PageOptions{AllPorts: true})).Rows {
				if r.Namespace != isAddress {
					got = append(got, r.Name)
				}
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("rows are %s, not %s", text, c.want)
			}
		})
	}
}

// TestWhatIsShownFirst shows the port and how far rows are unfolded.
func TestWhatIsShownFirst(t *testing.T) {
	many := make([]string, 130)
	for i := range many {
		many[i] = fmt.Sprint("pod", i)
	}
	on80 := Options{Service: flow.Service{Protocol: 6, Port: 80}}
	each := on80
	each.EachPod = true
	for _, c := range []struct {
		name  string
		o     PageOptions
		w     *cluster.Cluster
		port  string
		level int
	}{
		{"a few", PageOptions{Options: on80}, shop("a", "b"), "tcp/80", 1},
		{"many", PageOptions{Options: on80}, shop(many...), "tcp/80", 0},
		{"each pod", PageOptions{Options: each}, shop(many...), "tcp/80", 2},
		{"all ports", PageOptions{AllPorts: true}, shop("a"), "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := dataOf(t, write(t, c.w, c.o)); d.Port != c.port || d.Level != c.level {
				t.Errorf("shows %q, unfolded to %d, not %q and %d", d.Port, d.Level, c.port, c.level)
			}
		})
	}
}

// TestMatrixWithoutPods shows that a matrix without pods is an error, and that the matrix reports pods that own no
// address.
func TestMatrixWithoutPods(t *testing.T) {
	if _, err := WritePage(&bytes.Buffer{}, cluster.New().View(), PageOptions{}); err == nil {
		t.Error("an empty cluster has a page")
	}
	w := shop("a")
	w.SetPod(fixture.Pod("shop/b node1 10.32.1.2"))
	w.SetPod(fixture.Pod("shop/done Finished"))
	w.SetPod(fixture.Pod("shop/host HostNetwork"))
	omitted, err := WritePage(&bytes.Buffer{}, w.View(), PageOptions{AllPorts: true})
	if err != nil || len(omitted) != 1 {
		t.Errorf("left out are %v: %v", omitted, err)
	}
}
