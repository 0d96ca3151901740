package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// killTerminateScenarios returns the scenarios with --established=terminate. In them, connections are open when a
// change comes and weave-npc is killed.
func killTerminateScenarios() []killScenario {
	lone := `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], `
	peers := lone + `ingress: [{from: [{podSelector: {matchLabels: {app: db}}}, {namespaceSelector: {}, podSelector: {matchLabels: {colour: red}}}]}]}`
	scenarios := []killScenario{
		{name: "terminate_a_policy_comes_and_goes", states: []e2e.Change{killed(),
			e2e.Do(killed(), e2e.Policy("shop/q", `
podSelector: {matchExpressions: [{key: app, operator: In, values: [api, db]}]}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {}}], ports: [{port: 81}]}]
egress: [{to: [{namespaceSelector: {matchLabels: {team: b}}}]}]`))}},
		{name: "terminate_a_policy_is_edited", states: []e2e.Change{
			e2e.Do(killedBase(), e2e.Policy("shop/p",
				lone+`ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}], egress: [{to: [{podSelector: {}}]}]}`)),
			e2e.Do(killedBase(), e2e.Policy("shop/p",
				lone+`ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}], egress: [{to: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`))}},
		{name: "terminate_peers_are_relabelled", states: []e2e.Change{
			e2e.Do(killedBase(), e2e.Policy("shop/p", peers), e2e.Pod("ops/copy", e2e.Labelled("app=web"))),
			e2e.Do(killedBase(), e2e.Policy("shop/p", peers), e2e.Pod("ops/copy", e2e.Labelled("app=web,colour=red")),
				e2e.Pod("shop/db", e2e.Labelled("app=none")))}},
		{name: "terminate_an_Admin_Deny_comes_and_goes", nodes: true, states: []e2e.Change{killed(), e2e.Do(killed(),
			e2e.ClusterPolicy("guard", e2e.Admin("1", e2e.AllPods, e2e.Ingress("Deny", webEverywhere),
				e2e.Egress("Deny", `{networks: [$out4/32, "$n14/32", "$n16/128"]}`))))}},
	}
	for i := range scenarios {
		o := &openTalks{states: scenarios[i].states}
		scenarios[i].args, scenarios[i].prepare, scenarios[i].check = []string{"--established=terminate"}, o.open, o.evaluate
	}
	return scenarios
}

// openTalks are connections that are open during a transition.
type openTalks struct {
	states   []e2e.Change
	talkers  *e2e.Connections
	live     []*e2e.Connection
	stop     chan struct{}
	chatting sync.WaitGroup
	mu       sync.Mutex
	wrong    []string // what went wrong with those that chat
}

// open opens connections that the state before a transition allows, between all pairs. Of those that the state after it
// allows as well, every second one says something all the time.
func (o *openTalks) open(t *testing.T, w *e2e.Cluster, state int) {
	t.Helper()
	if o.talkers == nil {
		o.talkers = e2e.NewConnections(t, w)
	}
	before, after := w.Objects(o.states[state]).Evaluated(t,
		w), w.Objects(o.states[(state+1)%len(o.states)]).Evaluated(t, w)
	names := slices.Sorted(maps.Keys(w.Hosts))
	o.live, o.wrong, o.stop = nil, nil, make(chan struct{})
	for _, from := range names {
		for _, to := range names {
			e2e.EachFamily(func(family int) {
				c := &e2e.Connection{From: w.Hosts[from], To: w.Hosts[to], Family: family, Proto: "tcp",
					Port: e2e.BackendPort}
				if from != to && (!w.Undecided(from, to) || w.IsOwnNode(from, to)) &&
					before.Allowed(refmodel.Everywhere, c.Packet()) {
					o.talkers.Begin(t, c, c.Direct())
					o.live = append(o.live, c)
				}
			})
		}
	}
	for i, c := range o.live {
		if i%2 == 0 && len(c.DeniedOn(after)) == 0 {
			o.chatting.Go(func() { o.chat(c) })
		}
	}
}

// chat has both ends say something again and again.
func (o *openTalks) chat(c *e2e.Connection) {
	for {
		select {
		case <-o.stop:
			return
		case <-time.After(50 * time.Millisecond):
		}
		if why := c.Once(true, false); why != "" {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.wrong = append(o.wrong, fmt.Sprintf("%s, allowed all the time: %s", c, why))
			return
		}
	}
}

// refmodel expects that the connections have ended that the state denies, and no others.
func (o *openTalks) evaluate(t *testing.T, w *e2e.Cluster, state int) {
	t.Helper()
	close(o.stop)
	o.chatting.Wait()
	now := w.Objects(o.states[state]).Evaluated(t, w)
	why, ended := make([]string, len(o.live)), 0
	var speakers sync.WaitGroup
	for i, c := range o.live {
		denied := c.DeniedOn(now)
		if len(denied) > 0 {
			ended++
		}
		speakers.Go(func() {
			if text := c.Becomes(denied, i%4 < 2); text != "" {
				why[i] = fmt.Sprintf("%s, denied on %v: %s", c, denied, text)
			}
		})
	}
	speakers.Wait()
	for _, c := range o.live {
		c.Close()
	}
	if wrong := strings.Join(slices.DeleteFunc(append(why, o.wrong...), func(s string) bool { return s == "" }),
		"\n"); wrong != "" {
		t.Errorf("after the kills:\n%s\n%s", wrong, w.State())
	}
	if state == 1 && (ended == 0 || ended == len(o.live)) { // on the way back it may be that all are allowed
		t.Errorf("%d of %d connections ended: the scenario shows nothing", ended, len(o.live))
	}
	t.Logf("%d of %d connections ended", ended, len(o.live))
}
