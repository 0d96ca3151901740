package controller_test

import (
	"fmt"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
)

// TestS27_APodThatLeftIsNoFormerOwner shows that a pod keeps what it has that the source tells nothing more of, and is let in at once when it is told
// of again; and that another pod that has its address then is a new owner.
func TestS27_APodThatLeftIsNoFormerOwner(t *testing.T) {
	const named = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`
	const unnamed = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: nobody}}}]}]}`
	uid := func(p *npc.Pod) { p.Node, p.UID = "node2", "1" }
	other := func(p *npc.Pod) { p.Node, p.UID = "node2", "2" }
	for _, test := range []struct {
		name  string
		back  func(w *world)
		flush string // the requests of IPv4 then
		want  string
	}{
		{"it_returns", func(w *world) { w.SetPod("a/peer", "10.32.2.3,fd32:2::3", []string{"app=client"}, uid) }, "[]", "a/peer > a/web tcp:80 = yes"},
		{"another_of_its_name", func(w *world) { w.SetPod("a/peer", "10.32.2.3,fd32:2::3", []string{"app=client"}, other) }, "[10.32.2.3 false false]",
			"a/peer > a/web tcp:80 = no"},
		{"another_has_its_address", func(w *world) { w.SetPod("a/next", "10.32.2.3,fd32:2::3", []string{"app=client"}, other) }, "[10.32.2.3 false false]",
			"a/next > a/web tcp:80 = no"},
		{"a_local_pod_has_its_address", func(w *world) { w.Pod("a/next", "10.32.2.3,fd32:2::3", "app=client") }, "[10.32.2.3 true false]",
			"a/next > a/web tcp:80 = no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.Namespace("a")
			w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
			w.SetPod("a/peer", "10.32.2.3,fd32:2::3", []string{"app=client"}, uid)
			w.Policy("a/web", named)
			w.Sync()
			w.Expect("a/peer > a/web tcp:80 = yes")
			var flushed []string
			apply := func() {
				flushed = []string{}
				for f, tx := range w.Plan(false) {
					if err := w.Kernels[f].Apply(tx); err != nil {
						t.Fatal(err)
					}
					for _, r := range tx.FlushConntrack {
						if f == 0 {
							flushed = append(flushed, fmt.Sprint(r.Addr, r.Scope == conntrack.All, r.Later))
						}
					}
				}
				w.Model.Resume()
			}
			w.Policy("a/web", unnamed)
			apply()
			w.Model.LeavePod("a", "peer", "1")
			apply()
			if len(flushed) > 0 {
				t.Errorf("connections of %v are deleted, whose pod left", flushed)
			}
			w.Expect("10.32.2.3 > a/web tcp:80 = no")
			test.back(w)
			apply()
			if got := fmt.Sprint(flushed); got != test.flush {
				t.Errorf("connections of %s are deleted, want %s", got, test.flush)
			}
			w.Policy("a/web", named)
			apply() // what is to be forgotten has not been yet
			w.Expect(test.want)
		})
	}
}
