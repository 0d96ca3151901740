package names

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// start makes a network in which a resolver serves and a policy is enforced.
func start(t *testing.T, backend lab.Backend, policy e2e.Change, args ...string) *e2e.Cluster {
	t.Helper()
	w := e2e.New(t, backend, lab.Config{})
	openOutside(t, w)
	serve(t, w.Hosts["mon"])
	w.Begin(t, e2e.Do(base(), policy), args...)
	return w
}

// mustLookUp has web ask the resolver, and returns the address that it is told.
func mustLookUp(t *testing.T, w *e2e.Cluster, network, name string, family int) netip.Addr {
	t.Helper()
	a, err := lookUp(w.Hosts["web"], w.Hosts["mon"].Addr(family), network, name, family)
	if err != nil {
		t.Fatalf("%s by %s: %v\n%s", name, network, err, w.State())
	}
	return a
}

// reaches expects that web reaches an address outside, or not.
func reaches(t *testing.T, w *e2e.Cluster, a netip.Addr, want bool) {
	t.Helper()
	if err := dial(w.Hosts["web"], a, want); (err == nil) != want {
		t.Errorf("web reaches %s: %v, want %t\n%s", a, err, want, w.State())
	}
}

// TestS108_S111_OnlyNamesOfTheRule looks up names that a rule has and names that it does not have, with the case of letters
// changed, and by a pod that no rule is for.
func TestS108_S111_OnlyNamesOfTheRule(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, byName("*.example.com", "n9.example.org"))
		for i, c := range []struct {
			name string
			want bool
		}{
			{"n1.example.com.", true}, {"N2.eXample.COM.", true}, {"n3.a.b.example.com.", true}, {"n9.example.org.", true},
			{"n4.example.org.", false}, {"n5.notexample.com.", false}, {"n6.example.com.org.", false}, {"k7.example.com.", true},
			{"n8.n9.example.org.", false},
		} {
			family, network := 4+i%2*2, [...]string{"udp", "tcp"}[i/2%2]
			reaches(t, w, mustLookUp(t, w, network, c.name, family), c.want)
		}
		a, err := lookUp(w.Hosts["db"], w.Hosts["mon"].Addr4(), "udp", "n20.example.com.", 4)
		if err != nil {
			t.Fatal(err)
		}
		reaches(t, w, a, false)
		explained(t, w, backend)
		o := w.Objects(e2e.Do(base(), byName("n1.example.com")))
		w.Apply(t, o)
		reaches(t, w, outside(6, 2), false)
		o = w.Objects(base())
		w.Apply(t, o)
		reaches(t, w, outside(4, 4), true)
	})
}

// explained asks explain on the node and elsewhere about an address that was learned.
func explained(t *testing.T, w *e2e.Cluster, backend lab.Backend) {
	t.Helper()
	ask := []string{"explain", "--manifests", w.Source.(*e2e.Manifests).Dir, "--from", "shop/web", "--to", outside(4, 1).String(),
		"--port", "tcp/" + strconv.Itoa(serverPort)}
	out, stderr, _ := e2e.Execute(t, w.Node("node1"), nil, ask...)
	if !strings.Contains(out, "it may be an address of *.example.com, n9.example.org") {
		t.Errorf("explain says\n%s%s", out, stderr)
	}
	ask = append(ask, "--kernel", "--node-name", "node1", "--iptables-backend", string(backend))
	out, stderr, _ = e2e.Execute(t, w.Node("node1"), nil, ask...)
	if !strings.Contains(out, "as the policies say") {
		t.Errorf("explain --kernel says\n%s%s", out, stderr)
	}
	ask[6] = "N1.example.com"
	out, stderr, _ = e2e.Execute(t, w.Node("node1"), nil, ask...)
	if !strings.Contains(out, "-> "+outside(4, 1).String()) || !regexp.MustCompile(`is an address of n1\.example\.com, for \d+`).MatchString(out) {
		t.Errorf("explain --kernel says about n1.example.com\n%s%s", out, stderr)
	}
	ask = []string{"show", "names", "--manifests", w.Source.(*e2e.Manifests).Dir, "--node-name", "node1", "--iptables-backend", string(backend)}
	out, stderr, _ = e2e.Execute(t, w.Node("node1"), nil, ask...)
	if !regexp.MustCompile(`(?m)^n1\.example\.com +`+outside(4, 1).String()+` +\S+ +names +weave-\S+$`).MatchString(out) ||
		strings.Contains(out, "n4.example.org") {
		t.Errorf("show names says\n%s%s", out, stderr)
	}
}

// TestS108_ExplainKnowsWhoseListLearned has two pods with lists of their own that share a name, which one of them looks
// up: the other one does not reach the address, and explain --kernel says so of both.
func TestS108_ExplainKnowsWhoseListLearned(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, e2e.Do(byName("*.example.com"), byNameFrom("db", "1", "n1.example.com", "*.example.org")))
		a := mustLookUp(t, w, "udp", "n1.example.com.", 4)
		for pod, want := range map[string]bool{"web": true, "db": false} {
			if err := dial(w.Hosts[pod], a, want); (err == nil) != want {
				t.Errorf("%s reaches the address: %v, want %t", pod, err, want)
			}
			out, stderr, status := e2e.Execute(t, w.Node("node1"), nil, "explain", "--kernel", "--node-name", "node1",
				"--iptables-backend", string(backend), "--manifests", w.Source.(*e2e.Manifests).Dir,
				"--from", "shop/"+pod, "--to", "n1.example.com", "--port", "tcp/"+strconv.Itoa(serverPort))
			if (status == 0) != want || !strings.Contains(out, "as the policies say") {
				t.Errorf("explain from %s ends with %d and says\n%s%s", pod, status, out, stderr)
			}
		}
	})
}

// TestS110_UntrustedAnswers has others than the resolvers answer: a pod that answers as a resolver does, one that
// sends answers that nobody asked for, and the pod itself.
func TestS110_UntrustedAnswers(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, byName("*.example.com"))
		serve(t, w.Hosts["db"])
		w.Apply(t, w.Objects(e2e.Do(base(), byName("*.example.com"), e2e.ClusterPolicy("more", e2e.Admin("0",
			e2e.WebAlone, e2e.Egress("Accept", e2e.DBAlone))))))
		a, err := lookUp(w.Hosts["web"], w.Hosts["db"].Addr4(), "udp", "n1.example.com.", 4)
		if err != nil {
			t.Fatal(err)
		}
		reaches(t, w, a, false)
	})
}

// TestS108_S113_Expiry waits until an address expires. The connection to it stays.
func TestS108_S113_Expiry(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, byName("*.example.com"), "--domain-grace", "3s", "--established", "terminate")
		a := mustLookUp(t, w, "udp", "n1.example.com.", 4)
		c, err := w.Hosts["web"].DialContext(t.Context(), "tcp", netip.AddrPortFrom(a, echoPort).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		await.Within(t, e2e.Timeout, func() bool { return dial(w.Hosts["web"], a, false) != nil },
			func() string { return "it does not expire\n" + w.State() })
		w.Apply(t, w.Objects(e2e.Do(base(), byName("*.example.com"), e2e.Pod("shop/web", e2e.Labelled("app=web,more=x")))))
		echoes(t, c, true)
		w.Apply(t, w.Objects(e2e.Do(base(), byName("*.example.org"))))
		await.Within(t, e2e.Timeout, func() bool { return !echo(c, time.Second) },
			func() string { return "a connection stays whose names are gone\n" + w.State() })
	})
}

// TestS113_S114_ARestartEndsNothing kills weave-npc before and after the address of an open connection expires, and once
// more when nobody has the address any more.
func TestS113_S114_ARestartEndsNothing(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, byName("*.example.com"), "--domain-grace", "3s", "--established", "terminate")
		d, open := w.Daemons[0], []net.Conn{}
		connect := func(name string, family int) netip.Addr {
			t.Helper()
			a := mustLookUp(t, w, "udp", name, family)
			c, err := w.Hosts["web"].DialContext(t.Context(), "tcp", netip.AddrPortFrom(a, echoPort).String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			open = append(open, c)
			return a
		}
		a := connect("n1.example.com.", 4)
		await.Within(t, e2e.Timeout, func() bool { return dial(w.Hosts["web"], a, false) != nil },
			func() string { return "it does not expire\n" + w.State() })
		connect("n2.example.com.", 6)
		for range 2 {
			d.Kill(t)
			time.Sleep(5 * time.Second) // the TTL of a second and the grace period
			d.Start(t)
			d.AwaitReady(t)
			time.Sleep(await.Scaled(time.Second)) // connections are looked at twice
			for i, c := range open {
				if !echo(c, e2e.Timeout) {
					t.Errorf("connection %d is ended\n%s", i, w.State())
				}
			}
			reaches(t, w, a, false)
		}
		w.Apply(t, w.Objects(e2e.Do(base(), byName("*.example.org"))))
		await.Within(t, e2e.Timeout, func() bool { return !echo(open[0], time.Second) && !echo(open[1], time.Second) },
			func() string { return "a connection stays whose names are gone\n" + w.State() })
	})
}

// TestS109_TheFirstAnswerAfterAPolicyIsHeld: the pod looks a name up as soon as a policy has it.
func TestS109_TheFirstAnswerAfterAPolicyIsHeld(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rest())
		for _, names := range []string{"*.example.com", "*.example.org"} {
			w.Apply(t, w.Objects(e2e.Do(base(), byName(names))))
			for number, family := range map[int]int{1: 4, 2: 6} {
				reaches(t, w, mustLookUp(t, w, "udp", fmt.Sprintf("n%d%s.", number, names[1:]), family), true)
			}
			w.Apply(t, w.Objects(e2e.Do(base(), rest())))
		}
	})
}

// TestS113_AnEditKeepsWhatWasLearned adds a name to a policy and removes one: what the others have stays reachable all
// the time, and its connections stay.
func TestS113_AnEditKeepsWhatWasLearned(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, byName("*.example.com"), "--established", "terminate")
		first, second := mustLookUp(t, w, "udp", "n1.example.com.", 4), mustLookUp(t, w, "tcp", "n2.example.com.", 6)
		c, err := w.Hosts["web"].DialContext(t.Context(), "tcp", netip.AddrPortFrom(first, echoPort).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		stop, failed := make(chan struct{}), make(chan error)
		go func() {
			var err error
			for err == nil {
				select {
				case <-stop:
					failed <- nil
					return
				default:
					err = dial(w.Hosts["web"], first, true)
				}
			}
			failed <- err
		}()
		for _, names := range [][]string{{"*.example.com", "n9.example.org"}, {"n1.example.com", "n2.example.com"}, {"*.example.com"}} {
			w.Apply(t, w.Objects(e2e.Do(base(), byName(names...))))
			reaches(t, w, second, true)
		}
		close(stop)
		if err := <-failed; err != nil {
			t.Errorf("during an edit: %v\n%s", err, w.State())
		}
		w.Apply(t, w.Objects(e2e.Do(base(), byName("n1.example.com"))))
		reaches(t, w, first, true)
		reaches(t, w, second, false)
		echoes(t, c, true)
	})
}

// echo reports whether a server that echoes does so within a time.
func echo(c net.Conn, within time.Duration) bool {
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	n, err := c.Read(make([]byte, 1))
	return err == nil && n == 1
}

func echoes(t *testing.T, c net.Conn, want bool) {
	t.Helper()
	within := time.Second
	if want {
		within = e2e.Timeout
	}
	if got := echo(c, within); got != want {
		t.Errorf("the connection is open: %t, want %t", got, want)
	}
}

// TestS112_S114_Restart kills weave-npc: what was learned stays, answers with names wait for five seconds and pass then, and
// nothing new is reached. Other names, and other pods, have their answers at once. A stream to a resolver that is older than the next weave-npc is reset.
func TestS112_S114_Restart(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, byName("*.example.com"), "--domain-grace", "1h")
		known := mustLookUp(t, w, "udp", "n1.example.com.", 4)
		old := openStream(t, w)
		defer old.Close()
		if _, err := exchange(old, "tcp", question("n2.example.com.", 4)); err != nil {
			t.Fatal(err)
		}
		d := w.Daemons[0]
		d.Kill(t)
		began := time.Now()
		_, err := ask(w.Hosts["web"], netip.AddrPortFrom(w.Hosts["mon"].Addr4(), resolverPort), "udp", "n3.example.com.", 4, time.Second)
		if err == nil && time.Since(began) < 2*time.Second {
			t.Error("an answer arrives while nobody learns its address")
		}
		mustLookUp(t, w, "udp", "n3.example.org.", 4)
		if _, err := lookUp(w.Hosts["db"], w.Hosts["mon"].Addr4(), "udp", "n3.example.com.", 4); err != nil {
			t.Errorf("another pod has no answer: %v", err)
		}
		await.Within(t, e2e.Timeout, func() bool {
			_, err := ask(w.Hosts["web"], netip.AddrPortFrom(w.Hosts["mon"].Addr4(), resolverPort), "udp", "n3.example.com.", 4, time.Second)
			return err == nil
		}, func() string { return "no answer arrives\n" + w.State() })
		reaches(t, w, outside(4, 3), false)
		reaches(t, w, known, true)
		d.Start(t)
		d.AwaitReady(t)
		reaches(t, w, known, true)
		reaches(t, w, outside(4, 3), false)
		if _, err := exchange(old, "tcp", question("n4.example.com.", 4)); err == nil {
			t.Error("a stream goes on whose beginning weave-npc did not see")
		}
		reaches(t, w, outside(4, 4), false)
		reaches(t, w, mustLookUp(t, w, "tcp", "n4.example.com.", 4), true)
	})
}

// openStream opens a connection from web to the resolver.
func openStream(t *testing.T, w *e2e.Cluster) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	c, err := w.Hosts["web"].DialContext(ctx, "tcp", netip.AddrPortFrom(w.Hosts["mon"].Addr4(), resolverPort).String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// TestS109_AResolverOnTheNode asks a resolver on the node, which --dns-resolvers names.
func TestS109_AResolverOnTheNode(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		openOutside(t, w)
		serve(t, w.Hosts["n1"])
		resolvers := ""
		e2e.EachFamily(func(family int) {
			resolvers += "," + netip.AddrPortFrom(w.Hosts["n1"].Addr(family), resolverPort).String()
		})
		w.Begin(t, e2e.Do(base(), byName("*.example.com")), "--dns-resolvers", resolvers[1:])
		for i := range 8 {
			family, network := 4+i%2*2, [...]string{"udp", "tcp"}[i/2%2]
			a, err := lookUp(w.Hosts["web"], w.Hosts["n1"].Addr(family), network, "n"+string(rune('1'+i))+".example.com.", family)
			if err != nil {
				t.Fatalf("%s, %d: %v\n%s", network, family, err, w.State())
			}
			reaches(t, w, a, true)
		}
	})
}
