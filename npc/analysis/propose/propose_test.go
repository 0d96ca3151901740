package propose_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc/analysis/propose"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/golden"
)

// pods are the workloads of the recordings.
var pods = map[string]string{
	"web":    "shop/web-7d4-x Deployment/web 10.32.1.2 app=web pod-template-hash=7d4 app.kubernetes.io/version=3",
	"web2":   "shop/web-9f1-y Deployment/web 10.32.2.2 app=web pod-template-hash=9f1 app.kubernetes.io/version=4",
	"canary": "shop/web-canary-1-x Deployment/web-canary 10.32.1.3 app=web track=canary pod-template-hash=1",
	"api":    "shop/api-1-x Deployment/api 10.32.1.4 app=api",
	"db":     "shop/db-0 StatefulSet/db 10.32.1.5 app=db statefulset.kubernetes.io/pod-name=db-0",
	"once":   "shop/once-x Job/once 10.32.1.6 job-name=once batch.kubernetes.io/controller-uid=u",
	"alone":  "shop/alone Pod/alone 10.32.1.7 app=alone",
	"dns":    "kube-system/coredns-x Deployment/coredns 10.32.2.9 k8s-app=kube-dns team=infra",
	"nginx":  "ingress/nginx-x DaemonSet/nginx 10.32.1.8 app.kubernetes.io/name=nginx controller-revision-hash=a",
	"mon":    "ops/mon-x Deployment/mon 10.32.2.5 app=mon",
}

func end(text string) flowlog.End {
	pod, ok := pods[text]
	if !ok {
		address, node := strings.CutSuffix(text, "(node)")
		return flowlog.End{Addr: netip.MustParseAddr(address), NodeAddr: node}
	}
	p := fixture.Pod(pod)
	return flowlog.End{Namespace: p.Namespace, Workload: p.Workload.String(), Pod: p.Name, Addr: p.Addrs[0], Labels: p.Labels}
}

// recording reads lines such as "web > api tcp/80 http 12": the ends, the port, its names or -, how many connections
// there were, and what was otherwise than usual.
func recording(t *testing.T, lines string) (records []flowlog.Record) {
	t.Helper()
	day := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		s, err := flow.ParseService(words[3])
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(words[5], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := flowlog.Record{First: day, Last: day.AddDate(0, 0, 7), Count: n, Replied: n, Node: "node1", Verdict: flowlog.Allowed,
			From: end(words[0]), To: end(words[2]), Port: s}
		if words[4] != "-" {
			r.PortNames = strings.Split(words[4], ",")
		}
		switch strings.Join(words[6:], " ") {
		case "denied":
			r.Verdict, r.Replied = flowlog.Denied, 0
		case "silent":
			r.Replied = 0
		}
		records = append(records, r)
	}
	return records
}

// TestProposals compares what is proposed with files that one can read.
func TestProposals(t *testing.T) {
	for _, c := range []struct {
		name, recording string
		request         propose.Request
		known           func(*cluster.Cluster)
	}{
		{name: "shop", recording: `
			nginx > web tcp/8080 http 1200
			nginx > web2 tcp/8080 http 4
			web > api tcp/80 - 1100
			api > db tcp/5432 pg 310
			api > db tcp/5432 pg 2
			mon > db tcp/9187 - 96
			web > db tcp/5432 pg 3 denied
			web > dns udp/53 dns 2200
			api > dns udp/53 dns 620
			api > dns tcp/53 dns-tcp 1
			api > 192.0.2.10 tcp/443 - 12
			api > 198.51.100.4 tcp/443 - 1 silent`},
		{name: "addresses", request: propose.Request{Limit: 3}, recording: `
			api > 192.0.2.10 tcp/443 - 1
			api > 192.0.2.12 tcp/443 - 1
			api > 192.0.2.14 tcp/443 - 1
			api > 198.51.100.4 tcp/443 - 1
			api > 203.0.113.7 tcp/443 - 1
			api > 203.0.113.7 udp/123 - 1
			10.250.0.1(node) > api tcp/80 - 1`},
		{name: "pods-below-addresses", request: propose.Request{Limit: 1}, recording: `
			api > 10.32.1.0 tcp/443 - 1
			api > 10.32.1.15 tcp/443 - 1
			api > db tcp/5432 - 1`},
		{name: "a-range-has-what-another-rule-needs", request: propose.Request{Limit: 1}, recording: `
			api > 192.0.2.1 tcp/443 - 1
			api > 192.0.2.1 tcp/80 - 1
			api > 192.0.2.14 tcp/443 - 1
			api > 192.0.2.14 tcp/80 - 1
			api > 192.0.2.5 tcp/443 - 1`},
		{name: "labels-of-others", recording: `
			nginx > web tcp/8080 - 1
			canary > db tcp/5432 - 1
			web > db tcp/5432 - 1`},
		{name: "without-labels", recording: `
			once > db tcp/5432 - 1
			api > db tcp/5432 - 1`},
		{name: "icmp", recording: `
			mon > api icmp - 1
			mon > api tcp/80 - 7
			web > api tcp/80 - 7`},
		{name: "port-names", recording: `
			nginx > web tcp/8080 http,www 1
			nginx > web2 tcp/8080 www 1
			nginx > web tcp/9090 metrics 1
			nginx > web2 tcp/9090 - 1
			nginx > web tcp/7070 a 1
			nginx > web2 tcp/7070 b 1
			nginx > web2 tcp/7071 b 1
			nginx > api tcp/80 http 1
			nginx > api tcp/81 http 1`},
		{name: "itself", recording: `
			alone > alone tcp/80 - 5
			alone > dns udp/53 - 1
			api > api tcp/80 - 5`},
		{name: "manifests", request: propose.Request{All: true}, known: func(c *cluster.Cluster) {
			for _, facts := range []string{"shop/web-7d4-z app=web http:8080", "shop/api-1-x app=api node7@10.250.0.1",
				"shop/idle-1-x app=idle pod-template-hash=1", "shop/agent HostNetwork"} {
				c.SetPod(fixture.Pod(facts))
			}
			c.SetPolicy(fixture.Policy(t, "shop/proposed-web", "{podSelector: {}}"))
		}, recording: `
			nginx > web tcp/8080 http 1
			nginx > api tcp/80 http 1
			10.250.0.1(node) > api tcp/80 http 1
			10.250.0.2(node) > api tcp/80 http 1
			db > api tcp/80 http 1 silent`},
		{name: "dns-itself", request: propose.Request{Namespace: "kube-system"}, recording: `
			web > dns udp/53 dns 7
			dns > 192.0.2.53 udp/53 - 7
			dns > dns udp/53 dns 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.request
			r.Records = recording(t, c.recording)
			if r.Namespace == "" {
				r.Namespace = "shop"
			}
			r.Limit = max(r.Limit, 1)
			if c.request.Limit == 0 {
				r.Limit = 8
			}
			if c.known != nil {
				known := cluster.New()
				c.known(known)
				r.Known = known.View()
			}
			policies, without, err := r.Policies()
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("# without a policy: %q\n", without)
			for _, p := range policies {
				text += "---\n" + p.Text
				read := fixture.Object[networkingv1.NetworkPolicy](t, p.Text)
				if diff := cmp.Diff(p.Object, read, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("the text is not the object: -object +text:\n%s", diff)
				}
			}
			golden.Compare(t, "testdata/"+c.name+".yaml", text)
		})
	}
}

// TestNothingToPropose shows what is said where there is nothing.
func TestNothingToPropose(t *testing.T) {
	for _, c := range []struct {
		name    string
		request propose.Request
		want    string
	}{
		{"another_namespace", propose.Request{Namespace: "shpo", Limit: 8}, "there is no pod of namespace shpo; did you mean shop?"},
		{"nothing_that_counts", propose.Request{Namespace: "shop", Limit: 8},
			"no connection from or to pods of namespace shop was allowed and got a reply"},
		{"no_limit", propose.Request{Namespace: "shop"}, "a limit of 0 ranges allows no address; give 1 or more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.request.Records = recording(t, "web > api tcp/80 - 1 silent\nweb > db tcp/80 - 1 denied")
			if _, _, err := c.request.Policies(); err == nil || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}
