package enforce

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// colour returns the subject or the peer of the pods that have a colour.
func colour(name string) string {
	return `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: ` + name + `}}}}`
}

// flip is an event that changes a state, and one that changes it back.
type flip struct {
	name      string
	state     change
	red, blue change
	// both are flows, as wants has them, that are denied in one direction in both states: they must be among those that
	// are opened.
	both string
	// drops is set where S93 lets what both states allow be dropped for a moment, and where an event ends or begins a
	// pod.
	drops bool
	// owned leaves of the second state the pods that have their addresses, where two claim one; nil for all.
	owned change
	says  string
}

// flips are events under policies whose last rule accepts everything: what leaves one set before it is in the next is
// accepted.
func flips() []flip {
	acceptIn, acceptOut := clusterPolicy("z", admin("9", allPods, ingress("Accept", allPods))), clusterPolicy("z", admin("9", allPods, egress("Accept", allPods)))
	deny, allow := "ingress: [{action: Deny, from: [{namespaces: {}}]}]", "ingress: [{action: Pass, from: [{namespaces: {}}]}]"
	paint := func(name, colour string) change { return pod(name, labelled("app="+ownName(name)+",colour="+colour)) }
	return []flip{
		{name: "a_peer_moves_between_rules", state: do(acceptIn, clusterPolicy("a", admin("1", webAlone, ingress("Deny", colour("red")))),
			clusterPolicy("b", admin("2", webAlone, ingress("Deny", colour("blue"))))),
			red: paint("shop/db", "red"), blue: paint("shop/db", "blue"), both: "-db>web"},
		{name: "a_peer_of_another_node_moves_to_Baseline", drops: true, state: do(acceptIn,
			clusterPolicy("a", admin("1", webAlone, `ingress: [{action: Pass, from: [`+colour("blue")+`]}, {action: Deny, from: [`+colour("red")+`]}]`)),
			clusterPolicy("b", baseline("1", webAlone, ingress("Deny", colour("blue"))))),
			red: paint("ops/copy", "red"), blue: paint("ops/copy", "blue"), both: "-copy>web"},
		{name: "a_destination_moves_to_a_v1_policy", drops: true, state: do(acceptOut,
			clusterPolicy("a", admin("1", shopPods, `egress: [{action: Pass, to: [`+colour("blue")+`]}, {action: Deny, to: [`+colour("red")+`]}]`)),
			policy("shop/p", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`)),
			red: paint("ops/mon", "red"), blue: paint("ops/mon", "blue"), both: "-web>mon -api>mon"},
		{name: "a_namespace_of_peers_is_relabelled", drops: true, state: do(acceptIn, clusterPolicy("a", admin("1", shopPods, `ingress: [
{action: Pass, from: [{namespaces: {matchLabels: {zone: blue}}}]}, {action: Deny, from: [{namespaces: {matchLabels: {zone: red}}}]}]`)),
			clusterPolicy("b", baseline("1", shopPods, ingress("Deny", `{namespaces: {matchLabels: {zone: blue}}}`)))),
			red: namespace("ops", "team=b,zone=red"), blue: namespace("ops", "team=b,zone=blue"), both: "-mon>web -copy>web -copy>api -mon>api"},
		{name: "a_subject_moves_from_Admin_to_Baseline", drops: true, state: do(acceptIn,
			clusterPolicy("a", admin("1", colour("red"), deny)), clusterPolicy("b", admin("2", colour("blue"), allow)),
			clusterPolicy("c", baseline("1", colour("blue"), deny))),
			red: paint("shop/web", "red"), blue: paint("shop/web", "blue"), both: "-db>web -copy>web"},
		{name: "a_subject_moves_from_Admin_to_a_v1_policy", drops: true, state: do(
			clusterPolicy("a", admin("1", colour("red"), deny)),
			policy("shop/p", `{podSelector: {matchLabels: {colour: blue}}}`)),
			red: paint("shop/web", "red"), blue: paint("shop/web", "blue"), both: "-db>web -copy>web"},
		{name: "a_subject_moves_between_lists", state: do(clusterPolicy("a", admin("1", colour("red"), deny)),
			clusterPolicy("b", admin("2", colour("blue"), deny)), clusterPolicy("c", admin("3", allPods, ingress("Accept", monAlone)))),
			red: paint("shop/web", "red"), blue: paint("shop/web", "blue"), both: "-db>web -copy>web"},
		{name: "a_namespace_of_subjects_and_peers_is_relabelled", drops: true, state: do(
			clusterPolicy("a", admin("1", `{namespaces: {matchLabels: {zone: red}}}`, `ingress: [{action: Deny, from: [{namespaces: {matchLabels: {zone: red}}}]}]`)),
			clusterPolicy("b", baseline("1", `{namespaces: {matchLabels: {zone: blue}}}`, `ingress: [{action: Deny, from: [{namespaces: {matchLabels: {zone: blue}}}]}]`)),
			clusterPolicy("y", admin("8", `{namespaces: {matchLabels: {zone: blue}}}`, ingress("Pass", `{namespaces: {matchLabels: {zone: blue}}}`))),
			acceptIn),
			red: namespace("shop", "team=a,zone=red"), blue: namespace("shop", "team=a,zone=blue"), both: "-db>web -api>web -web>api"},
		{name: "a_pod_is_replaced", drops: true, state: do(acceptIn, clusterPolicy("a", admin("1", colour("red"), deny)),
			clusterPolicy("b", admin("2", colour("blue"), allow)), clusterPolicy("c", baseline("1", colour("blue"), deny)),
			clusterPolicy("d", admin("1", monAlone, ingress("Deny", colour("red")))), clusterPolicy("e", admin("2", monAlone, ingress("Deny", colour("blue"))))),
			red:  pod("shop/web", uid("red"), labelled("app=web,colour=red")),
			blue: pod("shop/web", uid("blue"), labelled("app=web,colour=blue")), both: "-db>web -copy>web -web>mon"},
		{name: "an_address_moves_to_another_pod", drops: true, says: conflict, state: do(acceptIn, clusterPolicy("a", admin("1", colour("red"), deny)),
			clusterPolicy("b", admin("2", colour("blue"), allow)), clusterPolicy("c", baseline("1", colour("blue"), deny))),
			red:  do(without("ops/next"), pod("shop/web", uid("red"), labelled("app=web,colour=red"))),
			blue: do(without("shop/web"), pod("ops/next", at("web"), uid("blue"), labelled("app=web,colour=blue"))), both: "-db>web -copy>web"},
		{name: "a_remote_address_moves", drops: true, state: do(acceptIn,
			clusterPolicy("a", admin("1", webAlone, `ingress: [{action: Pass, from: [`+colour("blue")+`]}, {action: Deny, from: [`+colour("red")+`]}]`)),
			clusterPolicy("b", baseline("1", webAlone, ingress("Deny", colour("blue"))))), says: conflict,
			red: do(without("ops/next"), paint("ops/copy", "red")), blue: pod("ops/next", at("copy"), started, labelled("colour=blue")),
			owned: without("ops/copy"), both: "-copy>web"},
	}
}

// TestS93_NothingThatBothStatesDenyIsAccepted changes what rules and lists pods are in, at short intervals, while new
// connections are opened all the time.
func TestS93_NothingThatBothStatesDenyIsAccepted(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := startSlow(t, backend)
		for _, f := range flips() {
			t.Run(f.name, func(t *testing.T) {
				for _, d := range w.daemons {
					if f.says != "" {
						d.log.expect(f.says)
					}
				}
				f.run(t, w)
			})
		}
	})
}

// betweenMessages is how long a slow weave-npc waits before each message to the kernel: what is between two of them is
// seen by packets.
const betweenMessages = 4 * time.Millisecond

// startSlow makes a harness with slow daemons and manifests.
func startSlow(t *testing.T, backend lab.Backend) *harness {
	t.Helper()
	w := newHarness(t, backend, lab.Config{})
	m := w.fromManifests(t, base())
	for i, n := range w.Nodes() {
		d := newDaemon(n, w.daemonArgs(i, "--manifests", m.dir)...)
		d.startBy(t, func(cmd *lab.Cmd) error {
			return cmd.StartIntercepted(func(c lab.Call) {
				if c.Process == "weave-npc" && (c.Number == unix.SYS_SENDTO || c.Number == unix.SYS_SENDMSG) {
					time.Sleep(betweenMessages)
				}
			})
		})
		d.endWith(t)
		w.daemons = append(w.daemons, d)
	}
	for _, d := range w.daemons {
		d.awaitReady(t)
	}
	return w
}

func (f flip) run(t *testing.T, w *harness) {
	red, blue := w.objects(do(base(), f.state, f.red)), w.objects(do(base(), f.state, f.red, f.blue))
	seen := blue.clone()
	if f.owned != nil {
		f.owned(w, seen)
	}
	flows := w.streamed(red.evaluated(t, w), seen.evaluated(t, w), !f.drops)
	w.includes(t, flows, f.both)
	w.apply(t, red)
	stream, err := lab.NewStream(streamRate, flows)
	if err != nil {
		t.Fatal(err)
	}
	const times = 30
	for i := range times {
		w.source.write(t, blue)
		time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
		w.source.write(t, red)
		time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
		if i%10 == 0 { // every now and then everybody is seen to follow
			w.apply(t, blue)
			w.apply(t, red)
		}
	}
	w.finish(t, stream, flows)
}

// includes fails the test if a flow is missing that it is about.
func (w *harness) includes(t *testing.T, flows []lab.StreamFlow, verdicts string) {
	t.Helper()
	for _, v := range strings.Fields(verdicts) {
		from, to, _ := strings.Cut(v[1:], ">")
		if !slices.ContainsFunc(flows, func(s lab.StreamFlow) bool {
			return s.Denied == (v[0] == '-') && s.From == w.hosts[from] && s.To == w.hosts[to]
		}) {
			t.Errorf("no flow is %s in both states", v)
		}
	}
}

// finish ends a stream, and fails the test if any of its flows was wrong.
func (w *harness) finish(t *testing.T, stream *lab.Stream, flows []lab.StreamFlow) {
	t.Helper()
	stream.Round(t.Context())
	result, err := stream.Close()
	if err != nil {
		t.Fatal(err)
	}
	denied := 0
	for _, f := range flows {
		if f.Denied {
			denied++
		}
	}
	t.Logf("%d connections, of %d flows that are denied and %d that are allowed: %d wrong accepts, %d wrong drops", result.Opened, denied,
		len(flows)-denied, result.WrongAccepts, result.WrongDrops)
	if result.WrongAccepts+result.WrongDrops > 0 {
		t.Errorf("wrong:\n%s\n%s", strings.Join(result.Wrong, "\n"), w.state())
	}
}

// streamed returns flows that both states deny in the same direction and, if they are asked for, some that both allow.
func (w *harness) streamed(before, after refmodel.State, allowed bool) []lab.StreamFlow {
	var flows []lab.StreamFlow
	for _, from := range slices.Sorted(maps.Keys(w.hosts)) {
		for _, to := range slices.Sorted(maps.Keys(w.hosts)) {
			if !w.isPod(from) && !w.isPod(to) || w.undecided(from, to) {
				continue
			}
			families(func(family int) {
				f := lab.StreamFlow{From: w.hosts[from], To: w.hosts[to], Family: family, Proto: "udp", Port: streamPort}
				p := packetOf(f.From.Addr(family), f.To.Addr(family), f.Proto, f.Port)
				out1, in1 := before.Evaluate(refmodel.Everywhere, p)
				out2, in2 := after.Evaluate(refmodel.Everywhere, p)
				f.Denied = !out1 && !out2 || !in1 && !in2
				if f.Denied || allowed && out1 && out2 && in1 && in2 {
					flows = append(flows, f)
				}
			})
		}
	}
	return flows
}
