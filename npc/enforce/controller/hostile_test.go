package controller_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
)

// TestS27_LateDeletesOfSeveralPredecessors arrive while the pod that has their name waits for its turn.
func TestS27_LateDeletesOfSeveralPredecessors(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *harness)
		want string // of what is in force for the pod of that name
	}{
		{"two_late_deletes", func(w *harness) {
			w.setUID("3", "app=other")
			w.Model.DeletePod("a", "web", "2")
			w.Model.DeletePod("a", "web", "1")
		}, "yes"},
		{"it_goes_and_another_comes", func(w *harness) {
			w.setUID("3", "app=other")
			w.Model.DeletePod("a", "web", "3")
			w.setUID("4", "app=web")
		}, "no"},
		{"it_comes_and_goes", func(w *harness) {
			w.setUID("3", "app=web")
			w.Model.DeletePod("a", "web", "3")
			w.Model.DeletePod("a", "web", "1")
		}, "yes"},
		{"only_deletes_the_right_one_first", func(w *harness) {
			w.Model.DeletePod("a", "web", "first")
			w.Model.DeletePod("a", "web", "2")
		}, "yes"},
		{"only_deletes_the_right_one_last", func(w *harness) {
			w.Model.DeletePod("a", "web", "2")
			w.Model.DeletePod("a", "web", "first")
		}, "yes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, func(c *enforce.Config) { c.FailClosed = enforce.FailClosedNever })
			w.Namespace("a")
			w.setUID("first", "app=web")
			w.Sync()
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}}`) // what follows has to wait for it
			c.do(w)
			w.Again(false)
			w.Expect("outside > a/web tcp:80 = " + c.want)
		})
	}
}

// setUID sets pod a/web, as the object with that UID.
func (w *harness) setUID(uid types.UID, labels ...string) {
	w.SetPod("a/web", "10.32.1.2", labels, func(p *npc.Pod) { p.UID = uid })
}

// TestUpdatesThatWaitAreFew has one pod change a hundred thousand times without a plan.
func TestUpdatesThatWaitAreFew(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a")
	w.Pod("a/web", "10.32.1.2", "app=web")
	w.Sync()
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
	before := heap()
	for i := range 100_000 {
		w.setUID(types.UID(fmt.Sprint(i%3)), fmt.Sprintf("app=%d", i))
		if i%7 == 0 {
			w.Model.DeletePod("a", "web", types.UID(fmt.Sprint(i%5)))
		}
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes wait", grown)
	}
	w.setUID("last", "app=web")
	w.Again(false)
	w.Expect("outside > a/web tcp:80 = no")
}

// heap is the memory in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHugeObjects are within what the API server takes.
func TestHugeObjects(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a", "team=a")
	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
	var expressions, blocks, excepts []string
	for i := range 1000 {
		expressions = append(expressions, fmt.Sprintf("{key: k%d, operator: NotIn, values: [a, b]}", i))
		blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: 20.%d.%d.0/24}}", i/250, i%250))
		excepts = append(excepts, fmt.Sprintf("30.%d.%d.0/24", i/250, i%250))
	}
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
		{from: [{podSelector: {matchLabels: {app: client}, matchExpressions: [`+strings.Join(expressions, ", ")+`]}}], ports: [{port: 1}]},
		{from: [`+strings.Join(blocks, ", ")+`], ports: [{port: 2}]},
		{from: [{ipBlock: {cidr: 30.0.0.0/8, except: [`+strings.Join(excepts, ", ")+`]}}], ports: [{port: 3}]}]}`)
	w.Sync()
	w.Expect(`
		a/client > a/web tcp:1 = yes
		a/client > a/web tcp:2 = no
		20.3.249.1 > 10.32.1.2 tcp:2 = yes
		20.4.0.1 > 10.32.1.2 tcp:2 = no
		30.3.249.1 > 10.32.1.2 tcp:3 = no
		30.4.0.1 > 10.32.1.2 tcp:3 = yes`)
	w.Relabel("a/client", "app=client", "k999=b")
	w.Again(false)
	w.Expect("a/client > a/web tcp:1 = no")
	for _, line := range strings.Split(w.Applied(), "\n") {
		if len(line) > 2000 {
			t.Errorf("a line of %d bytes goes to the kernel: %.200s", len(line), line)
		}
	}
	w.DeletePolicy("a/web")
	w.Again(false)
	w.CollectGarbage()
	if left := len(w.Kernels[0].Sets); left > 20 {
		t.Errorf("%d sets are left", left)
	}
}
