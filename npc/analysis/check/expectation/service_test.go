package expectation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestThrough shows which pods and ports stand for a Service.
func TestThrough(t *testing.T) {
	var services []*corev1.Service
	for _, text := range []string{
		`{metadata: {namespace: shop, name: db}, spec: {selector: {app: db}, clusterIP: 10.96.0.1, ports: [{port: 80, targetPort: sql, protocol: TCP}]}}`,
		`{metadata: {namespace: shop, name: web}, spec: {selector: {app: web}, clusterIP: 10.96.0.2, ports: [
			{name: http, port: 80, targetPort: 8080, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]}}`,
		`{metadata: {namespace: shop, name: headless}, spec: {selector: {app: db}, clusterIP: None}}`,
		`{metadata: {namespace: shop, name: external}, spec: {clusterIP: 10.96.0.3, ports: [{port: 80, protocol: TCP}]}}`,
	} {
		services = append(services, fixture.Object[corev1.Service](t, text))
	}
	const x = "x.yaml:4: "
	for text, want := range map[string]string{
		"dev reaches svc/db.shop on 80":             "ns=dev[] pods=[] reaches ns=shop[] pods=[app=db] [tcp/sql]",
		"dev reaches shop/svc/db":                   "ns=dev[] pods=[] reaches ns=shop[] pods=[app=db] [tcp/sql]",
		"dev reaches svc/shop/web on http, udp/53":  "ns=dev[] pods=[] reaches ns=shop[] pods=[app=web] [tcp/8080 udp/53]",
		"dev never reaches svc/web.shop":            "ns=dev[] pods=[] never ns=shop[] pods=[app=web] [tcp/8080 udp/53]",
		"only dev reaches svc/headless.shop on 99":  "not ns=dev[] pods=[] never ns=shop[] pods=[app=db] [tcp/99]",
		"dev reaches shop/db":                       "ns=dev[] pods=[] reaches ns=shop[] pods=db[] []",
		"dev reaches svc/web.shop":                  x + "Service shop/web has several ports: write on tcp/80 or on udp/53",
		"dev reaches svc/db.shop on 5432":           x + "Service shop/db has no port tcp/5432; it has tcp/80",
		"dev reaches svc/wbe.shop on 80":            x + "there is no Service wbe in namespace shop; did you mean web?",
		"dev reaches svc/external.shop on 80":       x + "Service shop/external selects no pods: name the addresses that it leads to",
		"svc/db.shop reaches dev":                   x + "svc/db.shop is a Service, which opens no connections: name its pods",
		"dev reaches svc/db.shop and shop/x on 80":  x + "svc/db.shop is a Service, whose ports are others than those of its pods: write an expectation for it alone",
		"dev reaches svc/db.shop.svc.cluster.local": "ns=dev[] pods=[] reaches ns=shop[] pods=[app=db] [tcp/sql]",
	} {
		files, problems := read(t, "- "+text)
		if len(problems) > 0 {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		var got string
		if err := files[0].Through(services); err != nil {
			got = err.Error()
		} else {
			got = show(files[0].Expectations[0])
		}
		if got != want {
			t.Errorf("%s:\n%s\n%s", text, got, want)
		}
	}
}
