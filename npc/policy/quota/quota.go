// Package quota limits the cost of network policies on a node, for each namespace and in total.
//
// The policies of one namespace cannot use up the resources of others. It knows nothing about the contents of policies.
//
//	l := quota.NewUsage(quota.Default())
//	err := l.Open(quota.Account{Namespace: "default", Name: "web", Created: t, Cost: c}) // why it is denied, or nil
//	changed := l.Reconcile()
package quota

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// Cost is the maximum cost of a policy in one family.
type Cost struct{ Rules, Sets, Entries int }

// Plus returns the sum of two costs.
func (c Cost) Plus(d Cost) Cost {
	return Cost{c.Rules + d.Rules, c.Sets + d.Sets, c.Entries + d.Entries}
}

func (c Cost) minus(d Cost) Cost {
	return Cost{c.Rules - d.Rules, c.Sets - d.Sets, c.Entries - d.Entries}
}

// The numbers of set entries that take as long to write as a rule and to create as a set. The kernel makes room for
// sets 64 by 64, and waits each time until no packet is in its old table.
const (
	ruleWeight = 32
	setWeight  = 128
)

// Weight returns the work for the kernel, in set entries.
func (c Cost) Weight() int { return ruleWeight*c.Rules + setWeight*c.Sets + c.Entries }

// Limit bounds one resource for a policy, for the policies of a namespace, and for all policies of the node, in one
// family.
type Limit struct{ Policy, Namespace, Node int }

// Limits holds the limits of all resources.
type Limits struct{ Rules, Sets, Entries Limit }

// Default returns the default limits. The kernel takes 65,534 sets, including both families and foreign ones.
func Default() Limits {
	return Limits{
		Rules:   Limit{Policy: 4_000, Namespace: 10_000, Node: 40_000},
		Sets:    Limit{Policy: 1_200, Namespace: 4_000, Node: 12_000},
		Entries: Limit{Policy: 100_000, Namespace: 400_000, Node: 1_600_000},
	}
}

// scope is the part of the node to which a limit applies.
type scope struct {
	name string
	of   func(Limit) int
}

func policyScope() scope    { return scope{"policy", func(l Limit) int { return l.Policy }} }
func namespaceScope() scope { return scope{"namespace", func(l Limit) int { return l.Namespace }} }
func nodeScope() scope      { return scope{"node", func(l Limit) int { return l.Node }} }

// over returns the first resource whose cost exceeds the limit of a scope, with its flag and limit. what is empty if
// there is none.
func (l Limits) over(c Cost, s scope) (what, flag string, limit int) {
	switch {
	case c.Sets > s.of(l.Sets):
		return "sets", "--max-sets", s.of(l.Sets)
	case c.Rules > s.of(l.Rules):
		return "rules", "--max-rules", s.of(l.Rules)
	case c.Entries > s.of(l.Entries):
		return "set entries", "--max-entries", s.of(l.Entries)
	}
	return "", "", 0
}

func (c Cost) of(what string) int {
	return map[string]int{"sets": c.Sets, "rules": c.Rules, "set entries": c.Entries}[what]
}

// Check returns an error if a cost exceeds the limits of a single policy.
func (l Limits) Check(c Cost) error {
	what, flag, limit := l.over(c, policyScope())
	if what == "" {
		return nil
	}
	return errors.Errorf("needs %s %s, the limit per policy is %s: %s policy=N",
		number(c.of(what)), what, number(limit), flag)
}

// fits returns an error if what a policy asks for does not fit into the rest of a scope.
func (l Limits) fits(used *tally, a *Account, s scope) error {
	what, flag, limit := l.over(used.with(a), s)
	if what == "" {
		return nil
	}
	return errors.Errorf("needs %s %s, more than other policies leave, the limit per %s is %s: %s %s=N",
		number(a.total().of(what)), what, s.name, number(limit), flag, s.name)
}

// number returns a number with commas.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Account is the request of a policy.
type Account struct {
	Namespace, Name string
	// Created is the creation time of the policy. If those of a namespace do not fit together, the older ones are
	// granted; at equal times the names decide.
	Created time.Time
	Cost    Cost
	// Members are the sets of pods that the policy asks for, each with the number of its entries, if these are counted.
	// Policies share the sets.
	Members map[string]int
}

// total returns what the policy asks for if no other one shares its sets.
func (a *Account) total() Cost { return (&tally{}).with(a) }

func (a *Account) before(b *Account) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// tally is what policies are granted together.
type tally struct {
	Cost
	sets map[string]shared
}

// shared is how many policies ask for a set of pods, and how many entries were counted for it.
type shared struct{ users, entries int }

// with returns the cost with that of one more policy.
func (t *tally) with(a *Account) Cost {
	c := t.Plus(a.Cost)
	for set, entries := range a.Members {
		if t.sets[set].users == 0 {
			c.Entries += entries
		}
	}
	return c
}

func (t *tally) add(a *Account) {
	t.Cost = t.with(a)
	for set, entries := range a.Members {
		if t.sets == nil {
			t.sets = map[string]shared{}
		}
		if s := t.sets[set]; s.users > 0 {
			entries = s.entries
		}
		t.sets[set] = shared{t.sets[set].users + 1, entries}
	}
}

func (t *tally) remove(a *Account) {
	t.Cost = t.minus(a.Cost)
	for set := range a.Members {
		s := t.sets[set]
		if s.users--; s.users > 0 {
			t.sets[set] = s
		} else {
			delete(t.sets, set)
			t.Entries -= s.entries
		}
	}
}

type key struct{ namespace, name string }

// Usage grants the requests of policies within the limits.
type Usage struct {
	Limits
	accounts   map[key]*Account
	denied     map[key]error
	node       tally
	namespaces map[string]*tally
	stale      bool
}

// NewUsage returns a Usage without accounts.
func NewUsage(l Limits) *Usage {
	return &Usage{Limits: l, accounts: map[key]*Account{}, denied: map[key]error{}, namespaces: map[string]*tally{}}
}

// of returns what the policies of a namespace are granted.
func of(tallies map[string]*tally, namespace string) *tally {
	t := tallies[namespace]
	if t == nil {
		t = &tally{}
		tallies[namespace] = t
	}
	return t
}

// Open adds a policy, or replaces the one of the same name, and grants its request if there is room. Otherwise it
// returns the reason, which is preliminary until Reconcile is called.
func (l *Usage) Open(a Account) error {
	l.Close(a.Namespace, a.Name)
	k := key{a.Namespace, a.Name}
	l.accounts[k] = &a
	l.stale = l.stale || len(l.denied) > 0 // its namespace needs more now
	if err := l.room(&a); err != nil {
		l.denied[k], l.stale = err, true
		return err
	}
	l.grant(&a)
	return nil
}

// Close removes a policy, if it exists.
func (l *Usage) Close(namespace, name string) {
	k := key{namespace, name}
	a := l.accounts[k]
	if a == nil {
		return
	}
	delete(l.accounts, k)
	l.stale = l.stale || len(l.denied) > 0
	if l.denied[k] != nil {
		delete(l.denied, k)
		return
	}
	l.node.remove(a)
	t := of(l.namespaces, namespace)
	if t.remove(a); t.Cost == (Cost{}) {
		delete(l.namespaces, namespace)
	}
}

// Recount replaces the sets of pods that a policy asks for, if it has an account. It counts after Reconcile.
func (l *Usage) Recount(namespace, name string, members map[string]int) {
	if a := l.accounts[key{namespace, name}]; a != nil {
		a.Members, l.stale = members, true
	}
}

func (l *Usage) room(a *Account) error {
	if err := l.Check(a.total()); err != nil {
		return err
	}
	if err := l.fits(of(l.namespaces, a.Namespace), a, namespaceScope()); err != nil {
		return err
	}
	return l.fits(&l.node, a, nodeScope())
}

func (l *Usage) grant(a *Account) {
	l.node.add(a)
	of(l.namespaces, a.Namespace).add(a)
}

// Stale reports whether Reconcile may change which policies are granted.
func (l *Usage) Stale() bool { return l.stale }

// Grant is the result of Reconcile for one policy.
type Grant struct {
	Namespace, Name string
	// Denied is the reason why the request is not granted; nil if it is.
	Denied error
	// Changed is set if the result was the opposite before.
	Changed bool
}

// Reconcile decides again about all policies, so that the result depends only on the existing policies and not on the
// order of their arrival. The oldest of a namespace come first, and of those of different namespaces that with which its
// namespace needs the least. So no namespace loses room to one that needs more. It returns the policies that are
// denied or no longer denied, the oldest first.
func (l *Usage) Reconcile() []Grant {
	if !l.stale {
		return nil
	}
	was := l.denied
	l.denied, l.node, l.namespaces, l.stale = map[key]error{}, tally{}, map[string]*tally{}, false
	oldest := slices.SortedFunc(maps.Values(l.accounts), (*Account).before)
	used, shares := map[string]*tally{}, map[*Account]float64{}
	for _, a := range oldest {
		with := of(used, a.Namespace)
		alone, _, _ := l.over(a.total(), policyScope())
		if together, _, _ := l.over(with.with(a), namespaceScope()); alone+together == "" {
			with.add(a)
			shares[a] = l.share(with.Cost)
		} else {
			shares[a] = math.Inf(1)
		}
	}
	for _, a := range slices.SortedStableFunc(slices.Values(oldest), func(a, b *Account) int {
		return cmp.Compare(shares[a], shares[b])
	}) {
		if err := l.room(a); err != nil {
			l.denied[key{a.Namespace, a.Name}] = err
		} else {
			l.grant(a)
		}
	}
	var out []Grant
	for _, a := range oldest {
		k := key{a.Namespace, a.Name}
		if err := l.denied[k]; err != nil || was[k] != nil {
			out = append(out, Grant{a.Namespace, a.Name, err, (err == nil) != (was[k] == nil)})
		}
	}
	return out
}

// share returns which part of the node a cost is, of the resource that it needs most of.
func (l *Usage) share(c Cost) float64 {
	part := func(n int, of Limit) float64 { return float64(n) / float64(max(of.Node, 1)) }
	return max(part(c.Sets, l.Sets), part(c.Rules, l.Rules), part(c.Entries, l.Entries))
}

// Denied returns the number of denied policies.
func (l *Usage) Denied() int { return len(l.denied) }

// String returns the limit in the format of Set.
func (l *Limit) String() string {
	return "policy=" + strconv.Itoa(l.Policy) + ",namespace=" + strconv.Itoa(l.Namespace) +
		",node=" + strconv.Itoa(l.Node)
}

// Type implements pflag.Value.
func (l *Limit) Type() string { return "limits" }

// Set changes the limits that a text names, such as "policy=1200,node=12000".
func (l *Limit) Set(text string) error {
	next := *l
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		to, ok := map[string]*int{"policy": &next.Policy, "namespace": &next.Namespace, "node": &next.Node}[name]
		if !ok {
			return errors.Errorf("%q is none of policy=N, namespace=N and node=N", part)
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return errors.Errorf("%s: %q is no number above 0", name, value)
		}
		*to = n
	}
	*l = next
	return nil
}
