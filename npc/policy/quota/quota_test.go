package quota

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func small() Limits {
	return Limits{Rules: Limit{10, 20, 40}, Sets: Limit{10, 20, 40}, Entries: Limit{100, 200, 400}}
}

func TestWhatAPolicyMayNeed(t *testing.T) {
	for want, c := range map[string]Cost{
		"":                           {10, 10, 100},
		"needs 11 sets":              {10, 11, 100},
		"needs 12 rules":             {12, 10, 100},
		"needs 1,234,567 set entrie": {1, 1, 1_234_567},
	} {
		err := small().Check(c)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v, not %q", c, err, want)
		}
	}
	want := "needs 7,500 sets, the limit per policy is 1,200: --max-sets policy=N"
	if err := Default().Check(Cost{Sets: 7500}); err == nil || err.Error() != want {
		t.Errorf("%v, not %q", err, want)
	}
}

// open opens accounts of sets, "namespace/name=sets@created", and reconciles.
func open(l *Usage, texts ...string) {
	for _, text := range texts {
		var a Account
		var created int64
		name, rest, _ := strings.Cut(text, "=")
		a.Namespace, a.Name, _ = strings.Cut(name, "/")
		if _, err := fmt.Sscanf(rest, "%d@%d", &a.Cost.Sets, &created); err != nil {
			panic(err)
		}
		a.Created = time.Unix(created, 0)
		_ = l.Open(a)
	}
	l.Reconcile()
}

// denied are the policies that are, in order.
func (l *Usage) names() string {
	var out []string
	l.stale = true
	for _, v := range l.Reconcile() {
		if v.Denied != nil {
			out = append(out, v.Namespace+"/"+v.Name)
		}
	}
	return strings.Join(out, " ")
}

// TestS76_NobodyLosesRoomToWhoNeedsMore shows that the oldest policies of a namespace are granted, and that those of
// namespaces that need little come before those of namespaces that need much, however old these are.
func TestS76_NobodyLosesRoomToWhoNeedsMore(t *testing.T) {
	l := NewUsage(small())
	open(l, "a/1=10@1", "a/2=10@2", "b/1=10@3")
	if l.Stale() || l.Denied() > 0 {
		t.Error("all of it fits")
	}
	open(l, "a/3=1@4", "c/1=10@5", "d/1=1@6")
	if got := l.names(); got != "a/2" {
		t.Errorf("denied: %s", got)
	}
	open(l, "b/0=10@0") // older than all others
	if got := l.names(); got != "a/2 b/1" {
		t.Errorf("with an older one, denied: %s", got)
	}
	l.Close("a", "1")
	if !l.Stale() {
		t.Error("there is room now")
	}
	verdicts := l.Reconcile()
	if len(verdicts) != 2 || !verdicts[0].Changed || verdicts[0].Denied != nil || verdicts[1].Denied == nil || verdicts[1].Changed {
		t.Errorf("verdicts: %v", verdicts)
	}
	if want := "needs 10 sets, more than other policies leave, the limit per node is 40: --max-sets node=N"; verdicts[1].Denied.Error() != want {
		t.Errorf("%v, not %q", verdicts[1].Denied, want)
	}
	open(l, "b/0=9@0") // less than before
	if got := l.names(); got != "b/1" {
		t.Errorf("denied: %s", got)
	}
	l.Close("b", "0")
	if got := l.names(); got != "" {
		t.Errorf("denied: %s", got)
	}
	l.Close("missing", "0")
}

// TestWhoIsDeniedDependsOnThePoliciesAlone and not on their order, nor on those that came and went.
func TestWhoIsDeniedDependsOnThePoliciesAlone(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var texts []string
		for i := range 20 {
			texts = append(texts, fmt.Sprintf("%c/%d=%d@%d", 'a'+r.IntN(4), i, r.IntN(11), r.IntN(5)))
		}
		first, second := NewUsage(small()), NewUsage(small())
		open(first, texts...)
		open(second, "a/gone=10@0", "b/gone=10@9")
		r.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
		open(second, texts[:10]...)
		open(second, texts[10:]...)
		second.Close("a", "gone")
		second.Close("b", "gone")
		second.Reconcile()
		if a, b := first.names(), second.names(); a != b {
			t.Fatalf("denied: %q in one order, %q in another", a, b)
		}
		if first.node.Cost != second.node.Cost || len(first.namespaces) != len(second.namespaces) {
			t.Fatal("other sums")
		}
		for name, c := range first.namespaces {
			if l := first.Limits; c.Sets > l.Sets.Namespace || first.node.Sets > l.Sets.Node || second.namespaces[name].Cost != c.Cost {
				t.Fatalf("%s needs %v", name, c)
			}
		}
	}
}

func TestLimitsOfAFlag(t *testing.T) {
	l := Limit{10, 20, 30}
	if err := l.Set("node=40, policy=5"); err != nil || l.String() != "policy=5,namespace=20,node=40" {
		t.Errorf("%s, %v", &l, err)
	}
	if err := l.Set(l.String()); err != nil || l != (Limit{5, 20, 40}) {
		t.Errorf("%s, %v", &l, err)
	}
	for _, bad := range []string{"", "5", "policy", "policy=", "policy=0", "policy=-1", "policy=x", "pod=3", "policy=6,node=x", "policy=1=2"} {
		if err := l.Set(bad); err == nil || l != (Limit{5, 20, 40}) {
			t.Errorf("%q is taken for %s", bad, &l)
		}
	}
}
