package input_test

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
)

// TestLine reads lines as they are printed.
func TestLine(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"blocked", `time=2026-11-23T11:00:00.000Z level=INFO msg=blocked direction=ingress protocol=TCP from="shop/web (10.32.1.2:41234)" ` +
			`to="shop/db (10.32.1.4:5432)" isolated_by=shop/db`, "shop/web shop/db tcp/5432"},
		{"of_no_pod", `level=INFO msg=blocked direction=ingress protocol=UDP from=192.0.2.1:4000 to="shop/db (10.32.1.4:53)"`, "192.0.2.1 shop/db udp/53"},
		{"IPv6", `msg=blocked protocol=SCTP from=[2001:db8::1]:4000 to="shop/db ([fd32::4]:53)"`, "2001:db8::1 shop/db sctp/53"},
		{"of_a_node", `msg=blocked protocol=TCP from="node (172.31.0.1:4000)" to="shop/db (10.32.1.4:53)"`, "172.31.0.1 shop/db tcp/53"},
		{"ICMP", `msg=blocked protocol=ICMPv6 from="shop/web (fd32::2)" to="shop/db (fd32::4)" icmp_type=128 icmp_code=0`, "shop/web shop/db icmp"},
		{"fragment", `msg=blocked protocol=UDP from="shop/web (10.32.1.2)" to="shop/db (10.32.1.4)" fragment=true`, "shop/web shop/db "},
		{"JSON_log", `{"time":"2026-11-23T11:00:00Z","level":"INFO","msg":"blocked","direction":"egress","protocol":"TCP",` +
			`"from":"shop/web (10.32.1.2:41234)","to":"10.32.1.4:5432"}`, "shop/web 10.32.1.4 tcp/5432"},
		{"with_the_name_of_the_pod_that_logs", `[pod/weave-npc-x7k2p/weave-npc] {"msg":"blocked","protocol":"TCP","from":"10.0.0.1:1","to":"10.0.0.2:80"}`,
			"10.0.0.1 10.0.0.2 tcp/80"},
		{"staged", `level=INFO msg=staged group=true would=drop policy=shop/db from="shop/Deployment/web (web-7d4-x 10.32.1.2)" ` +
			`to="shop/StatefulSet/db (db-0 10.32.1.4)" port=tcp/5432 by="no ingress rule of policy shop/db" repeats=3 within=10s`, "shop/web-7d4-x shop/db-0 tcp/5432"},
		{"flows", "2026-11-23 11:00:00  denied   shop/Deployment/web  node 172.31.0.1    tcp/5432 (pg,sql)  12     -        no ingress rule of policy shop/db",
			"shop/Deployment/web 172.31.0.1 tcp/5432"},
		{"flows_in_JSON", `{"first":"2026-11-23T11:00:00Z","last":"2026-11-23T11:00:00Z","count":1,"from":{"namespace":"shop","workload":"Deployment/web",` +
			`"pod":"web-7d4-x","address":"10.32.1.2"},"to":{"address":"192.0.2.1"},"port":"udp/53","verdict":"allowed"}`, "shop/web-7d4-x 192.0.2.1 udp/53"},
		{"conntrack", "tcp      6 117 SYN_SENT src=10.32.1.2 dst=10.32.1.4 sport=4444 dport=5432 [UNREPLIED] src=10.32.1.4 dst=10.32.1.2 sport=5432 dport=4444",
			"10.32.1.2 10.32.1.4 tcp/5432"},
		{"kernel", "kernel: drop IN=cni0 OUT=cni0 SRC=10.32.1.2 DST=10.32.1.4 LEN=60 PROTO=UDP SPT=4444 DPT=53 LEN=40", "10.32.1.2 10.32.1.4 udp/53"},
		{"quotes_and_backslashes", `msg=blocked protocol=TCP denied_by="Admin policy p/rule 1 \"a=b\"" from="a/b (10.0.0.1:1)" to="c/d (10.0.0.2:2)"`, "a/b c/d tcp/2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := input.FromLine(c.line + "\n")
			if text := strings.Join([]string{got.From, got.To, got.Port}, " "); err != nil || text != c.want {
				t.Errorf("read as %s, want %s: %v", text, c.want, err)
			}
		})
	}
}

// TestLineThatIsNone has one error that says what is missing.
func TestLineThatIsNone(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"empty", "", "is no line about a connection"},
		{"other", "level=INFO msg=started version=1", "is no line about a connection"},
		{"not_logged", "level=INFO msg=blocked not_logged=12 most_from=10.32.1.2", "is no line about a connection"},
		{"long", strings.Repeat("ä", 500), "..."},
		{"several", "msg=blocked\nmsg=blocked", "several lines"},
		{"cut_off", `{"msg":"blocked","from":"a`, "is no JSON"},
		{"record_that_is_none", `{"from":{},"to":{}}`, "the record of flows"},
		{"other_protocol", `msg=blocked protocol=47 from=10.0.0.1 to=10.0.0.2 dport=9`, `"47/9" is no port`},
		{"only_quotes", `from="`, "is no line about a connection"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := input.FromLine(c.line); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error: %v", err)
			}
		})
	}
}

// TestFlags takes the values of fields as they are printed, in addition to those that flags always take.
func TestFlags(t *testing.T) {
	for _, c := range []struct{ name, from, to, port, want string }{
		{"as_always", "shop/web", "svc/db.shop", "tcp/http", "shop/web svc/db.shop tcp/http"},
		{"address_and_port", "10.32.1.2:40322", "10.32.1.4:5432", "", "10.32.1.2 10.32.1.4 tcp/5432"},
		{"name_and_port", "shop/web:40322", "svc/db.shop:15432", "", "shop/web svc/db.shop tcp/15432"},
		{"domain_name_and_port", "shop/web", "api.example.com:443", "udp", "shop/web api.example.com udp/443"},
		{"no_port_after_the_colon", "shop/web", "https://api.example.com", "80", "shop/web https://api.example.com 80"},
		{"protocol_alone", "shop/web", "[fd32::4]:53", "UDP", "shop/web fd32::4 udp/53"},
		{"without_a_blank", "shop/web(10.32.1.2)", "shop/db(10.32.1.4)", "dport=80", "shop/web shop/db tcp/80"},
		{"keys", `from="shop/web (10.32.1.2:1)"`, "dst=10.32.1.4", "proto=udp dport=53", "shop/web 10.32.1.4 udp/53"},
		{"port_of_a_staged_line", "shop/web", "shop/Deployment/db", "port=tcp/80", "shop/web shop/Deployment/db tcp/80"},
		{"port_given", "shop/web", "10.32.1.4:5432", "tcp/80", "shop/web 10.32.1.4 tcp/80"},
		{"protocol_without_a_port", "shop/web", "shop/db", "tcp", "shop/web shop/db tcp"},
		{"icmp", "shop/web", "shop/db", "ICMPv6", "shop/web shop/db icmp"},
		{"nothing", "", "", "", "  "},
		{"parentheses_alone", "()", "x()", "80", "() x() 80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := input.FromFlags(input.Connection{From: c.from, To: c.to, Port: c.port})
			if text := strings.Join([]string{got.From, got.To, got.Port}, " "); err != nil || text != c.want {
				t.Errorf("read as %q, want %q: %v", text, c.want, err)
			}
		})
	}
	if _, err := input.FromFlags(input.Connection{Port: "proto=gre dport=1"}); err == nil || !strings.HasPrefix(err.Error(), "--port: ") {
		t.Errorf("error: %v", err)
	}
}

// FuzzLine never fails otherwise than with an error of one line.
func FuzzLine(f *testing.F) {
	f.Add(`msg=blocked protocol=TCP from="shop/web (10.32.1.2:41234)" to="shop/db (10.32.1.4:5432)"`)
	f.Add(`{"from":{"pod":""}}`)
	f.Add("a  denied  ( )  )(  x")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := input.FromLine(text)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error of several lines: %v", text, err)
		}
		if err == nil && (c.From == "" || c.To == "") {
			t.Errorf("%q is read as %v", text, c)
		}
	})
}
