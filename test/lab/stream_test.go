package lab

import (
	"strings"
	"testing"
)

func TestStreamFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	w, _ := newHarness(t, Config{Nodes: 1, IPv4: true, IPv6: true})
	web, db, node := host(t, w, "shop/web"), host(t, w, "shop/db"), w.Node("node1")
	var flows []StreamFlow
	for _, family := range []int{4, 6} {
		flows = append(flows,
			StreamFlow{From: db, To: web, Family: family, Proto: "udp", Port: 7},
			StreamFlow{From: w.Outside(), To: web, Family: family, Proto: "icmp"},
			StreamFlow{From: web, To: db, Family: family, Proto: "udp", Port: 7, Denied: true},
			StreamFlow{From: web, To: w.Outside(), Family: family, Proto: "icmp", Denied: true})
	}
	run := func(rules ...string) {
		t.Helper()
		for _, rule := range rules {
			program, rest, _ := strings.Cut(rule, " ")
			args := append([]string{"-w"}, strings.Fields(rest)...)
			if output, err := node.Command(t.Context(), program, args...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", rule, err, output)
			}
		}
	}
	run("iptables-nft -A FORWARD -m conntrack --ctstate NEW -s "+web.Addr4().String()+" -j DROP",
		"ip6tables-nft -A FORWARD -m conntrack --ctstate NEW -s "+web.Addr6().String()+" -j DROP")
	for _, c := range []struct {
		about          string
		rules          []string
		accepts, drops bool
		wrong          []string
	}{
		{about: "all is as it should be"},
		{about: "what is denied arrives", rules: []string{"iptables-nft -F FORWARD"}, accepts: true, wrong: []string{
			"shop/web to shop/db, udp, IPv4, denied: arrived", "shop/web to outside, icmp, IPv4, denied: was answered"}},
		{about: "what is allowed does not, and its answers do not", drops: true, rules: []string{
			"iptables-nft -A FORWARD -m conntrack --ctstate NEW -s " + web.Addr4().String() + " -j DROP",
			"ip6tables-nft -I FORWARD -p udp --dport 7 -j DROP", "iptables-nft -I FORWARD -p udp --sport 7 -j DROP"},
			wrong: []string{"shop/db to shop/web, udp, IPv6, allowed: did not arrive",
				"shop/db to shop/web, udp, IPv4, allowed: arrived, and its answer did not"}},
	} {
		run(c.rules...)
		s, err := NewStream(500, flows)
		if err != nil {
			t.Fatal(err)
		}
		before := s.Opened()
		for range 3 {
			s.Round(t.Context())
		}
		if n := s.Opened() - before; n < 3*len(flows) {
			t.Errorf("%s: three rounds of %d flows are %d", c.about, len(flows), n)
		}
		r, err := s.Close()
		if err != nil {
			t.Fatal(err)
		}
		if r.Opened < 3*len(flows) || r.WrongAccepts > 0 != c.accepts || r.WrongDrops > 0 != c.drops {
			t.Errorf("%s: %+v", c.about, r)
		}
		for _, wrong := range c.wrong {
			if !strings.Contains(strings.Join(r.Wrong, "\n"), wrong) {
				t.Errorf("%s: %q is not in %q", c.about, wrong, r.Wrong)
			}
		}
	}
}
