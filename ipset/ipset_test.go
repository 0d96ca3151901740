package ipset

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// open opens a connection in a network namespace of the test's own. The goroutine's thread stays locked and dies with
// the test, and the namespace with it.
func open(t testing.TB) *Conn {
	t.Helper()
	sandbox.Thread(t)
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func apply(t testing.TB, c *Conn, ops ...Op) {
	t.Helper()
	if err := c.Apply(ops); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, c *Conn, name string) Listing {
	t.Helper()
	sets, err := c.List(name)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(sets, func(l Listing) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("there is no set %s", name)
	}
	return sets[i]
}

// command runs ipset(8) in the test's namespace.
func command(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("ipset", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ipset %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

func ip(s string) netip.Addr     { return netip.MustParseAddr(s) }
func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func commented(e Entry, comment string) Element { return Element{e, Attr{Comment: comment}} }

func plain(entries ...Entry) []Element {
	var elements []Element
	for _, e := range entries {
		elements = append(elements, Element{Entry: e})
	}
	return elements
}

// addresses are n different ones from 10.0.0.1 on.
func addresses(n int) []Element {
	elements := make([]Element, n)
	for i := range elements {
		k := i + 1
		a := netip.AddrFrom4([4]byte{10, byte(k >> 16), byte(k >> 8), byte(k)})
		elements[i] = commented(Addr(a), fmt.Sprintf("namespace-%d/pod-%d", i%100, i))
	}
	return elements
}

func wantElements(t testing.TB, got, want []Element) {
	t.Helper()
	byText := func(elements []Element) []string {
		var texts []string
		for _, e := range elements {
			texts = append(texts, e.String())
		}
		slices.Sort(texts)
		return texts
	}
	if g, w := byText(got), byText(want); !slices.Equal(g, w) {
		t.Errorf("elements (-want +got):\n%.2000s", cmp.Diff(w, g))
	}
}

// samples are sets of every type and family with elements.
func samples() []Op {
	return []Op{
		{Kind: Create, Set: Set{Name: "ip4", Type: HashIP, Family: IPv4}, Elements: []Element{
			commented(Addr(ip("10.0.0.1")), "default/web"), {Entry: Addr(ip("255.255.255.255"))}}},
		{Kind: Create, Set: Set{Name: "ip6", Type: HashIP, Family: IPv6, Size: 1000}, Elements: []Element{
			commented(Addr(ip("fd00::1")), "default/web"), {Entry: Addr(ip("fe80::ff:fe00:1"))}}},
		{Kind: Create, Set: Set{Name: "net4", Type: HashNet, Family: IPv4}, Elements: []Element{
			commented(Net(cidr("10.0.0.0/8")), "block"), {Entry: Net(cidr("0.0.0.0/1"))},
			{Entry: Net(cidr("128.0.0.0/1"))},
			{Net(cidr("10.1.0.0/16")), Attr{NoMatch: true, Comment: "except = that"}},
			{Entry: Net(cidr("10.9.9.9/32"))}}},
		{Kind: Create, Set: Set{Name: "net6", Type: HashNet, Family: IPv6}, Elements: []Element{
			{Entry: Net(cidr("::/1"))}, commented(Net(cidr("8000::/1")), "half"), {Entry: Net(cidr("fd00::7/128"))},
			{Net(cidr("fd00:1::/32")), Attr{NoMatch: true}}}},
		{Kind: Create, Set: Set{Name: "port4", Type: HashIPPort, Family: IPv4}, Elements: []Element{
			commented(AddrPort(ip("10.0.0.1"), 6, 80), "http"), {Entry: AddrPort(ip("10.0.0.1"), 17, 53)},
			{Entry: AddrPort(ip("10.0.0.1"), 132, 65535)}, {Entry: AddrPort(ip("10.0.0.1"), 136, 1)}}},
		{Kind: Create, Set: Set{Name: "port6", Type: HashIPPort, Family: IPv6}, Elements: []Element{
			commented(AddrPort(ip("fd00::1"), 6, 8080), "http"), {Entry: AddrPort(ip("fd00::1"), 17, 53)}}},
		{Kind: Create, Set: Set{Name: "list", Type: ListSet}, Elements: []Element{
			commented(Member("ip4"), "namespace default"), {Entry: Member("net6")}}},
		{Kind: Create, Set: Set{Name: strings.Repeat("n", 31), Type: HashIP, Family: IPv4}},
		{Kind: Create, Set: Set{Name: "weave-;|$*a", Type: HashIP, Family: IPv4},
			Elements: []Element{commented(Addr(ip("10.0.0.1")), strings.Repeat(`\c`, 127)+"c")}},
	}
}

// normal sorts the lines of one set's `ipset save` and drops the options that we do not choose.
func normal(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if fields[0] == "create" {
			if i := slices.Index(fields, "hashsize"); i >= 0 {
				fields = slices.Delete(fields, i, i+2)
			}
			line = strings.Join(fields, " ")
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	slices.Sort(lines)
	return lines
}

func TestEveryTypeRoundTrips(t *testing.T) {
	c := open(t)
	apply(t, c, samples()...)
	all, err := c.List("")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(samples()) {
		t.Errorf("List found %d sets, want %d", len(all), len(samples()))
	}
	for _, op := range samples() {
		t.Run(op.Set.Name, func(t *testing.T) {
			i := slices.IndexFunc(all, func(l Listing) bool { return l.Name == op.Set.Name })
			if i < 0 {
				t.Fatal("not listed")
			}
			got := all[i]
			if got.Set != op.Set || !got.Comments || int(got.Elements) != len(op.Elements) {
				t.Errorf("header %+v, want %+v with %d elements", got.Header, op.Set, len(op.Elements))
			}
			wantElements(t, got.Members, op.Elements)
		})
	}
	for _, op := range samples() { // on the thread of the namespace
		wantElements(t, get(t, c, op.Set.Name).Members, op.Elements)
		saved := normal(command(t, "", "save", op.Set.Name))
		if diff := cmp.Diff(normal(op.String()), saved); diff != "" {
			t.Errorf("ipset save %s (-String +saved):\n%s", op.Set.Name, diff)
		}
	}
	if got := get(t, c, "ip4").References; got != 1 {
		t.Errorf("ip4 has %d references, want 1", got)
	}
}

func TestRestoreAcceptsString(t *testing.T) {
	c := open(t)
	var text []string
	for _, op := range samples() {
		text = append(text, op.String())
	}
	text = append(text,
		Op{Kind: Delete, Set: Set{Name: "ip4", Type: HashIP, Family: IPv4}, Elements: addresses(1)}.String(),
		Op{Kind: Create, Set: Set{Name: "gone", Type: HashIP, Family: IPv4}}.String(),
		Op{Kind: Flush, Set: Set{Name: "gone"}}.String(),
		Op{Kind: Destroy, Set: Set{Name: "gone"}}.String(),
		Op{Kind: Create, Set: Set{Name: "a b", Type: HashIP, Family: IPv4}}.String(),
	)
	command(t, strings.Join(text, "\n")+"\n", "restore", "-exist")
	for _, op := range samples() {
		got := get(t, c, op.Set.Name)
		want := op.Elements
		if op.Set.Name == "ip4" {
			want = want[1:]
		}
		if got.Set != op.Set {
			t.Errorf("set %+v, want %+v", got.Set, op.Set)
		}
		wantElements(t, got.Members, want)
	}
	if _, err := c.header("gone"); !errors.Is(err, errNotFound) {
		t.Errorf("destroyed set: %v", err)
	}
	get(t, c, "a b")
	// What we would create is the same to the kernel: no ErrExists.
	apply(t, c, samples()...)
}

func TestOpString(t *testing.T) {
	elements := []Element{
		commented(Addr(ip("10.0.0.1")), "a\"b\nadd x 1.2.3.4"),
		{Net(cidr("10.0.0.0/8")), Attr{NoMatch: true, Comment: "c"}},
		{Entry: AddrPort(ip("fd00::1"), 6, 80)},
		{Entry: Member("other")},
	}
	tests := []struct {
		name string
		op   Op
		want string
	}{
		{"create", Op{Create, Set{Name: "x", Type: HashIP, Family: IPv4}, nil},
			"create x hash:ip family inet maxelem 4294967295 comment"},
		{"create with size", Op{Create, Set{Name: "x", Type: HashNet, Family: IPv6, Size: 5}, nil},
			"create x hash:net family inet6 maxelem 5 comment"},
		{"add with timeout", Op{Add, Set{Name: "x"}, []Element{
			{Net(cidr("10.0.0.0/8")), Attr{NoMatch: true, Comment: "c", Timeout: 30}}}},
			"add x 10.0.0.0/8 timeout 30 nomatch comment \"c\""},
		{"create with timeout", Op{Create, Set{Name: "x", Type: HashNet, Family: IPv4, Timeout: 5}, nil},
			"create x hash:net family inet maxelem 4294967295 timeout 5 comment"},
		{"create list", Op{Create, Set{Name: "x", Type: ListSet}, nil}, "create x list:set size 65535 comment"},
		{"create with elements", Op{Create, Set{Name: "x", Type: HashIP, Family: IPv4, Size: 7}, addresses(1)},
			"create x hash:ip family inet maxelem 7 comment\nadd x 10.0.0.1 comment \"namespace-0/pod-0\""},
		{"add", Op{Add, Set{Name: "x"}, elements}, "add x 10.0.0.1 comment \"a?b?add x 1.2.3.4\"\n" +
			"add x 10.0.0.0/8 nomatch comment \"c\"\nadd x fd00::1,tcp:80\nadd x other"},
		{"delete", Op{Delete, Set{Name: "x"}, elements},
			"del x 10.0.0.1\ndel x 10.0.0.0/8\ndel x fd00::1,tcp:80\ndel x other"},
		{"flush", Op{Kind: Flush, Set: Set{Name: "x\ny"}}, "flush x?y"},
		{"destroy", Op{Kind: Destroy, Set: Set{Name: "x y"}}, "destroy \"x y\""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.op.String(); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

func TestAddReplacesCommentAndNoMatch(t *testing.T) {
	c := open(t)
	set := Set{Name: "x", Type: HashNet, Family: IPv4}
	block := Net(cidr("10.0.0.0/8"))
	apply(t, c, Op{Kind: Create, Set: set})
	for _, attr := range []Attr{{Comment: "a"}, {Comment: "b", NoMatch: true}, {NoMatch: true}, {Comment: "c"}, {}} {
		want := []Element{{block, attr}}
		apply(t, c, Op{Kind: Add, Set: set, Elements: want})
		wantElements(t, get(t, c, "x").Members, want)
	}
}

func TestManyElements(t *testing.T) {
	c := open(t)
	set := Set{Name: "x", Type: HashIP, Family: IPv4}
	elements := addresses(70000)
	apply(t, c, Op{Kind: Create, Set: set}, Op{Kind: Add, Set: set, Elements: elements})
	got := get(t, c, "x")
	if got.Elements != 70000 {
		t.Errorf("header says %d elements", got.Elements)
	}
	want := make(map[Element]bool, len(elements))
	for _, e := range elements {
		want[e] = true
	}
	for _, e := range got.Members {
		if !want[e] {
			t.Fatalf("%v is listed twice or was not added", e)
		}
		delete(want, e)
	}
	if len(want) > 0 {
		t.Errorf("%d elements are missing", len(want))
	}
	apply(t, c, Op{Kind: Delete, Set: set, Elements: elements[5:]})
	wantElements(t, get(t, c, "x").Members, elements[:5])
}

func TestManySets(t *testing.T) {
	c := open(t)
	var create, destroy []Op
	for i := range 3000 {
		set := Set{Name: fmt.Sprintf("weave-%d", i), Type: HashIP, Family: IPv4}
		create = append(create, Op{Kind: Create, Set: set, Elements: addresses(i % 40)})
		destroy = append(destroy, Op{Kind: Destroy, Set: set})
	}
	apply(t, c, Op{Kind: Create, Set: Set{Name: "foreign", Type: HashIP, Family: IPv4}})
	apply(t, c, create...)
	lists, err := c.List("weave-")
	if err != nil {
		t.Fatal(err)
	}
	headers, err := c.Headers("weave-")
	if err != nil {
		t.Fatal(err)
	}
	if len(lists) != 3000 || len(headers) != 3000 {
		t.Fatalf("%d sets and %d headers are listed, want 3000", len(lists), len(headers))
	}
	found := map[string]Listing{}
	for i, l := range lists {
		found[l.Name] = l
		if headers[i] != l.Header {
			t.Fatalf("header %+v, listed %+v", headers[i], l.Header)
		}
	}
	for _, op := range create {
		wantElements(t, found[op.Set.Name].Members, op.Elements)
	}
	apply(t, c, destroy...)
	if headers, err = c.Headers(""); err != nil || len(headers) != 1 || headers[0].Name != "foreign" {
		t.Errorf("after destruction: %v, %v", headers, err)
	}
}

func TestListOfManySets(t *testing.T) {
	c := open(t)
	list := Set{Name: "list", Type: ListSet}
	var ops []Op
	var members []Element
	for i := range 1500 {
		name := fmt.Sprintf("weave-%025d", i)
		ops = append(ops, Op{Kind: Create, Set: Set{Name: name, Type: HashIP, Family: IPv4}})
		members = append(members, commented(Member(name), fmt.Sprintf("namespace %d", i)))
	}
	apply(t, c, append(ops, Op{Kind: Create, Set: list, Elements: members})...)
	wantElements(t, get(t, c, "list").Members, members)
	apply(t, c, Op{Kind: Delete, Set: list, Elements: members[1:]})
	wantElements(t, get(t, c, "list").Members, members[:1])
}

func TestWhatIsAbsentIsNoError(t *testing.T) {
	c := open(t)
	set := Set{Name: "x", Type: HashIP, Family: IPv4}
	list := Set{Name: "list", Type: ListSet}
	nets := Set{Name: "nets", Type: HashNet, Family: IPv6}
	elements := addresses(9)
	apply(t, c,
		Op{Kind: Create, Set: set, Elements: elements}, Op{Kind: Create, Set: nets},
		Op{Kind: Create, Set: list, Elements: plain(Member("x"), Member("nets"))},
		Op{Kind: Delete, Set: set, Elements: elements[3:5]},
		Op{Kind: Delete, Set: set, Elements: elements[1:]},
		Op{Kind: Delete, Set: nets, Elements: plain(Net(cidr("fd00::/8")))},
		// No such set, not a member, no set that could be one, a member.
		Op{Kind: Delete, Set: list, Elements: plain(Member("none"), Member("list"), Member("nil"), Member("x"))},
		Op{Kind: Destroy, Set: Set{Name: "none"}},
		Op{Kind: Flush, Set: Set{Name: "none"}},
		Op{Kind: Create, Set: set}, Op{Kind: Create, Set: nets}, Op{Kind: Create, Set: list},
	)
	wantElements(t, get(t, c, "x").Members, elements[:1])
	wantElements(t, get(t, c, "list").Members, plain(Member("nets")))
	apply(t, c, Op{Kind: Flush, Set: set})
	wantElements(t, get(t, c, "x").Members, nil)
	if lists, err := c.List("none"); err != nil || len(lists) != 0 {
		t.Errorf("List of absent sets: %v, %v", lists, err)
	}
}

// failures returns the OpErrors of a BatchError.
func failures(t *testing.T, err error) []*OpError {
	t.Helper()
	var batch *BatchError
	if !errors.As(err, &batch) {
		t.Fatalf("%T is not a BatchError: %v", err, err)
	}
	if text := err.Error(); strings.Contains(text, "\n") || len(text) > 2000 {
		t.Errorf("error is long: %q", text)
	}
	return batch.Errors
}

func TestFailures(t *testing.T) {
	hash := Set{Name: "x", Type: HashIP, Family: IPv4}
	six := Set{Name: "x", Type: HashIP, Family: IPv6}
	nets := Set{Name: "n", Type: HashNet, Family: IPv4}
	ports := Set{Name: "p", Type: HashIPPort, Family: IPv4}
	list := Set{Name: "l", Type: ListSet}
	small := Set{Name: "s", Type: HashIP, Family: IPv4, Size: 10}
	null, one := Addr(ip("0.0.0.0")), Addr(ip("10.9.9.9"))
	withNull := append(append(addresses(600), Element{Entry: null}), Element{Entry: one})
	tests := []struct {
		name     string
		before   []Op
		op       Op
		kind     error     // or nil
		elements []Element // that are named; nil: all, or none if there is no such set
		text     string    // in the message
		left     []Element // in the set after it
	}{
		{"element in the middle", []Op{{Create, hash, nil}}, Op{Add, hash, withNull},
			nil, withNull[600:601], "add x 0.0.0.0: the kernel does not store the null element (code 4353)",
			append(slices.Clone(withNull[:600]), withNull[601])},
		{"several elements", []Op{{Create, hash, nil}}, Op{Add, hash, plain(null, one, null)},
			nil, plain(null, null), "add x 0.0.0.0 0.0.0.0: ", plain(one)},
		{"only element", []Op{{Create, hash, nil}},
			Op{Add, hash, plain(null)}, nil, plain(null), "add x 0.0.0.0:", nil},
		{"full", nil, Op{Create, small, addresses(12)}, errFull, addresses(12)[10:], "set is full", addresses(10)},
		{"member that does not exist", []Op{{Create, hash, nil}},
			Op{Create, list, plain(Member("none"), Member("x"))},
			errNotFound, plain(Member("none")), "create l none: the member set does not exist", plain(Member("x"))},
		{"list in a list", []Op{{Create, list, nil}}, Op{Add, list, plain(Member("l"))},
			nil, nil, "a list of sets cannot hold another one", nil},
		{"add to an absent set", nil, Op{Add, hash, addresses(400)}, errNotFound, nil, "set does not exist", nil},
		{"delete from an absent set", nil, Op{Delete, hash, addresses(400)},
			errNotFound, nil, "set does not exist", nil},
		{"destroy in use", []Op{{Create, hash, plain(one)}, {Create, list, plain(Member("x"))}},
			Op{Destroy, hash, nil},
			ErrInUse, nil, "destroy x: set is in use", plain(one)},
		{"other type", []Op{{Create, Set{Name: "x", Type: HashNet, Family: IPv4}, nil}}, Op{Create, hash, nil},
			ErrExists, nil, "hash:net, family inet", nil},
		{"other family", []Op{{Create, six, nil}}, Op{Create, hash, nil}, ErrExists, nil, "family inet6", nil},
		{"other size", []Op{{Create, Set{Name: "x", Type: HashIP, Family: IPv4, Size: 5}, nil}},
			Op{Create, hash, nil}, ErrExists, nil, "size 5,", nil},
		{"no such type", nil, Op{Create, Set{Name: "x", Type: "hash:ham", Family: IPv4}, nil}, ErrUnsupported, nil, "hash:ham", nil},
		{"no family", nil, Op{Create, Set{Name: "x", Type: HashIP}, nil}, ErrUnsupported, nil, "family", nil},
		{"no name", []Op{{Create, hash, plain(one)}}, Op{Flush, Set{}, nil}, nil, nil, "set name", plain(one)},
		{"NUL in the name", nil, Op{Destroy, Set{Name: "\x00"}, nil}, nil, nil, "set name", nil},
		{"long name", nil, Op{Create, Set{Name: strings.Repeat("n", 32), Type: HashIP, Family: IPv4}, nil},
			nil, nil, "set name", nil},
		{"no kind", nil, Op{0, hash, nil}, nil, nil, "unknown operation", nil},
		{"whole internet", []Op{{Create, nets, nil}},
			Op{Add, nets, plain(Net(cidr("0.0.0.0/0")), Net(cidr("10.0.0.0/8")))},
			nil, plain(Net(cidr("0.0.0.0/0"))), "two halves", plain(Net(cidr("10.0.0.0/8")))},
		{"host bits", []Op{{Create, nets, nil}},
			Op{Add, nets, plain(Entry{Prefix: cidr("10.0.0.1/8")})}, nil, nil, "host bits", nil},
		{"network in hash:ip", []Op{{Create, hash, nil}},
			Op{Add, hash, plain(Net(cidr("10.0.0.0/8")))}, nil, nil, "single", nil},
		{"other family of an element", []Op{{Create, hash, nil}}, Op{Add, hash, plain(Addr(ip("::1")), one)},
			nil, plain(Addr(ip("::1"))), "family inet", plain(one)},
		{"mapped address", []Op{{Create, six, nil}}, Op{Add, six, plain(Entry{Prefix: cidr("::ffff:1.2.3.4/128")})},
			nil, nil, "not valid", nil},
		{"no address", []Op{{Create, hash, nil}}, Op{Add, hash, plain(Entry{})}, nil, nil, "not valid", nil},
		{"nomatch in hash:ip", []Op{{Create, hash, nil}},
			Op{Add, hash, []Element{{one, Attr{NoMatch: true}}}}, nil, nil, "nomatch", nil},
		{"long comment", []Op{{Create, hash, nil}},
			Op{Add, hash, []Element{commented(one, strings.Repeat("c", 256))}}, nil, nil, "256", nil},
		{"NUL in a comment", []Op{{Create, hash, nil}},
			Op{Add, hash, []Element{commented(one, "a\x00b")}}, nil, nil, "NUL", nil},
		{"port in hash:ip", []Op{{Create, hash, nil}},
			Op{Add, hash, plain(AddrPort(ip("10.0.0.1"), 6, 80))}, nil, nil, "no ports", nil},
		{"protocol without ports", []Op{{Create, ports, nil}},
			Op{Add, ports, plain(AddrPort(ip("10.0.0.1"), 1, 80))}, nil, nil, "protocol 1", nil},
		{"name in hash:ip", []Op{{Create, hash, nil}},
			Op{Add, hash, plain(Member("y"))}, nil, nil, "holds no sets", nil},
		{"address in list:set", []Op{{Create, list, nil}}, Op{Add, list, plain(one)}, nil, nil, "names only", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t)
			apply(t, c, tt.before...)
			sentinel := Set{Name: "sentinel", Type: HashIP, Family: IPv4}
			errs := failures(t, c.Apply([]Op{{Kind: Create, Set: sentinel}, tt.op,
				{Kind: Add, Set: sentinel, Elements: plain(one)}}))
			if len(errs) != 1 {
				t.Fatalf("%d errors, want 1: %v", len(errs), errs)
			}
			got := errs[0]
			if got.Index != 1 || got.Kind != tt.op.Kind || got.Set != tt.op.Set.Name {
				t.Errorf("error is about operation %d, %s %q", got.Index, got.Kind, got.Set)
			}
			if tt.kind != nil && !errors.Is(got, tt.kind) {
				t.Errorf("%v is not %v", got, tt.kind)
			}
			want := tt.elements
			if want == nil && len(tt.before) > 0 {
				want = tt.op.Elements
			}
			wantElements(t, got.Elements, want)
			if !strings.Contains(got.Error(), tt.text) {
				t.Errorf("%q does not say %q", got, tt.text)
			}
			if tt.left != nil {
				name := tt.op.Set.Name
				if name == "" {
					name = "x"
				}
				wantElements(t, get(t, c, name).Members, tt.left)
			}
			wantElements(t, get(t, c, "sentinel").Members, plain(one))
		})
	}
}

func TestErrorsAreBoundedAndInOrder(t *testing.T) {
	c := open(t)
	var ops []Op
	for i := range 2000 {
		set := Set{Name: fmt.Sprintf("x%d", i), Type: HashIP, Family: IPv4}
		ops = append(ops, Op{Kind: Add, Set: set, Elements: addresses(20)})
	}
	errs := failures(t, c.Apply(ops))
	if len(errs) != 2000 {
		t.Fatalf("%d errors, want 2000", len(errs))
	}
	for i, err := range errs {
		if err.Index != i || err.Elements != nil || !errors.Is(err, errNotFound) || !errors.Is(err, unix.ENOENT) {
			t.Fatalf("error %d: %+v", i, err)
		}
	}
	full := Op{Kind: Create, Set: Set{Name: "s", Type: HashIP, Family: IPv4, Size: 10}, Elements: addresses(5000)}
	errs = failures(t, c.Apply([]Op{full}))
	if len(errs) != 1 || len(errs[0].Elements) != 4990 || !errors.Is(errs[0], errFull) {
		t.Errorf("full set: %v", errs)
	}
	wantElements(t, get(t, c, "s").Members, full.Elements[:10])
}

// A receive buffer as small as the kernel makes it, so that answers to all that is sent at once would not fit.
func TestSmallReceiveBuffer(t *testing.T) {
	c := open(t)
	shrinkReceiveBuffer(t, c)
	var ops []Op
	for i := range 500 {
		set := Set{Name: fmt.Sprintf("x%d", i), Type: HashIP, Family: IPv4}
		ops = append(ops, Op{Kind: Create, Set: set, Elements: addresses(3)})
	}
	apply(t, c, ops...)
	if lists, err := c.List("x"); err != nil || len(lists) != 500 {
		t.Errorf("%d sets, %v", len(lists), err)
	}
}

func TestLostAnswersAreAnError(t *testing.T) {
	c := open(t)
	if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	var ops []Op
	for i := range 500 {
		ops = append(ops, Op{Kind: Create, Set: Set{Name: fmt.Sprintf("x%d", i), Type: HashIP, Family: IPv4}})
	}
	errs := failures(t, c.Apply(ops))
	if !errors.Is(errs[0], unix.ENOBUFS) {
		t.Errorf("error is %v", errs[0])
	}
	if last := errs[len(errs)-1]; last.Index != 499 || !errors.Is(last, unix.ENOBUFS) {
		t.Errorf("last error is %v", last)
	}
	c.drain()
	if got := get(t, c, "x0"); got.Name != "x0" {
		t.Errorf("listed %q", got.Name)
	}
}

func TestListingThatWasGivenUpDisturbsNoOther(t *testing.T) {
	c := open(t)
	set := Set{Name: "x", Type: HashIP, Family: IPv4}
	apply(t, c, Op{Kind: Create, Set: set, Elements: addresses(20000)})
	c.out.buf = c.out.buf[:0]
	c.seq++
	c.out.list("", false, c.seq)
	if err := c.send(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.read(0); err != nil {
		t.Fatal(err)
	}
	if got := get(t, c, "x"); len(got.Members) != 20000 {
		t.Errorf("%d members", len(got.Members))
	}
	apply(t, c, Op{Kind: Destroy, Set: set})
}

func TestOpenWithoutRights(t *testing.T) {
	sandbox.Thread(t) // which loses its rights, and dies with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
	c, err := Open()
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("error is %v", err)
	}
}

func TestSetsOfOtherKindsAreListed(t *testing.T) {
	c := open(t)
	command(t, `create a hash:net,port
add a 10.0.0.0/8,icmp:echo-request
create b bitmap:port range 0-100 comment
add b 7 comment "seven"
create c hash:net,iface
add c 10.0.0.0/8,eth0
create d hash:ip family inet6 timeout 100 counters
add d fd00::1
`, "restore")
	lists, err := c.List("")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lists {
		got = append(got, fmt.Sprintf("%s %s %t %d %d", l.Name, l.Type, l.Comments, l.Elements, len(l.Members)))
	}
	slices.Sort(got)
	want := []string{"a hash:net,port false 1 1", "b bitmap:port true 1 1",
		"c hash:net,iface false 1 1", "d hash:ip false 1 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sets (-want +got):\n%s", diff)
	}
	// A set with a timeout is another one.
	errs := failures(t, c.Apply([]Op{{Kind: Create, Set: Set{Name: "d", Type: HashIP, Family: IPv6, Size: 65536}}}))
	if len(errs) != 1 || !errors.Is(errs[0], ErrExists) {
		t.Errorf("errors: %v", errs)
	}
}

// TestElementsExpire unless they are added again. A set of another timeout is another one.
func TestElementsExpire(t *testing.T) {
	c := open(t)
	set := Set{Name: "x", Type: HashNet, Family: IPv4, Timeout: 2}
	kept, lost := Net(cidr("0.0.0.0/1")), Net(cidr("128.0.0.0/1"))
	create := Op{Kind: Create, Set: set, Elements: []Element{commented(kept, "kept"), commented(lost, "lost")}}
	apply(t, c, create)
	for range 6 {
		time.Sleep(500 * time.Millisecond)
		apply(t, c, Op{Kind: Add, Set: set, Elements: create.Elements[:1]})
	}
	got := get(t, c, "x")
	if got.Set != set || got.Mismatch(set) != "" {
		t.Errorf("header %+v, want %+v", got.Header, set)
	}
	for i := range got.Members {
		got.Members[i].Timeout = 0 // what is left depends on the moment
	}
	wantElements(t, got.Members, create.Elements[:1])
	apply(t, c, Op{Kind: Create, Set: set})
	other := set
	other.Timeout = 0
	if got.Mismatch(other) == "" {
		t.Error("a set of another timeout does not differ")
	}
	if errs := failures(t, c.Apply([]Op{{Kind: Create, Set: other}})); len(errs) != 1 || !errors.Is(errs[0], ErrExists) {
		t.Errorf("errors: %v", errs)
	}
	if saved := command(t, "", "save", "x"); !strings.Contains(saved, " timeout 2 comment") {
		t.Errorf("saved: %s", saved)
	}
}

// TestOtherOptionsShow: a header shows options that Create does not set.
func TestOtherOptionsShow(t *testing.T) {
	c := open(t)
	apply(t, c, Op{Kind: Create, Set: Set{Name: "ours", Type: HashIP, Family: IPv4}}, Op{Kind: Create, Set: Set{Name: "list", Type: ListSet}})
	for create, want := range map[string]string{
		"hash:ip": "no comments", "list:set comment counters": "counters",
		"hash:net comment forceadd skbinfo": "forceadd, skbinfo", "hash:ip comment netmask 24": "netmask",
	} {
		command(t, "", append([]string{"create", "other"}, strings.Fields(create)...)...)
		if got := get(t, c, "other").Other; got != want {
			t.Errorf("%s: %q, not %q", create, got, want)
		}
		command(t, "", "destroy", "other")
	}
	for _, name := range []string{"ours", "list"} {
		if got := get(t, c, name).Other; got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// withTimeout returns an address with attributes.
func withTimeout(address, comment string, seconds uint32) Element {
	return Element{Addr(ip(address)), Attr{Comment: comment, Timeout: seconds}}
}

// remaining returns the comments of a set's elements, and what is left of their timeouts.
func remaining(t testing.TB, c *Conn, name string) (comments map[string]string, seconds map[string]uint32) {
	t.Helper()
	comments, seconds = map[string]string{}, map[string]uint32{}
	for _, e := range get(t, c, name).Members {
		comments[e.Entry.String()], seconds[e.Entry.String()] = e.Comment, e.Timeout
	}
	return comments, seconds
}

// about reports whether a timeout is what is left of another one, on a machine that was busy for at most a minute.
func about(got, want uint32) bool { return got <= want && got+60 > want }

func TestElementsHaveTimeoutsOfTheirOwn(t *testing.T) {
	c := open(t)
	set := Set{Name: "x", Type: HashIP, Family: IPv4, Timeout: 600}
	apply(t, c, Op{Kind: Create, Set: set, Elements: []Element{
		withTimeout("10.0.0.1", "first", 3000), withTimeout("10.0.0.2", "", 0)}})
	apply(t, c, Op{Kind: Add, Set: set, Elements: []Element{withTimeout("10.0.0.3", "last", 2147483)}})
	comments, left := remaining(t, c, "x")
	if len(left) != 3 || !about(left["10.0.0.1"], 3000) || !about(left["10.0.0.2"], 600) ||
		!about(left["10.0.0.3"], 2147483) || comments["10.0.0.1"] != "first" || comments["10.0.0.3"] != "last" {
		t.Errorf("the kernel lists %v, %v", left, comments)
	}
}

// TestAddReplacesTimeouts: a shorter one too. Callers keep the longest.
func TestAddReplacesTimeouts(t *testing.T) {
	c := open(t)
	set := Set{Name: "x", Type: HashIP, Family: IPv6, Timeout: 600}
	apply(t, c, Op{Kind: Create, Set: set})
	for _, seconds := range []uint32{300, 4000, 4, 0} {
		apply(t, c, Op{Kind: Add, Set: set, Elements: []Element{withTimeout("fd00::1", "a", seconds)}})
		want := seconds
		if seconds == 0 {
			want = set.Timeout
		}
		if _, left := remaining(t, c, "x"); len(left) > 1 || !about(left["fd00::1"], want) {
			t.Errorf("after %d s: %v", seconds, left)
		}
	}
}

// TestTimeoutsPrintAsIpsetDoes, in the same order: a listing can be restored.
func TestTimeoutsPrintAsIpsetDoes(t *testing.T) {
	c := open(t)
	elements := map[Type]Element{
		HashIP:     withTimeout("10.0.0.1", "a b", 90000),
		HashNet:    {Net(cidr("10.0.0.0/8")), Attr{Comment: "c", NoMatch: true, Timeout: 90000}},
		HashIPPort: {AddrPort(ip("10.0.0.1"), 17, 53), Attr{Comment: "d", Timeout: 90000}},
	}
	for typ, e := range elements {
		op := Op{Kind: Create, Set: Set{Name: "x", Type: typ, Family: IPv4, Timeout: 5}, Elements: []Element{e}}
		command(t, op.String()+"\n", "restore", "-exist")
		for range 10 { // the second may end between the two
			want := strings.TrimSpace(command(t, "", "save", "x"))
			got := "add x " + get(t, c, "x").Members[0].String()
			if want = want[strings.Index(want, "\n")+1:]; got == want {
				break
			} else if word := strings.Fields(want); !slices.Contains(word, "timeout") || len(word) != len(strings.Fields(got)) {
				t.Errorf("prints as %s, not %s", got, want)
				break
			}
		}
		apply(t, c, Op{Kind: Destroy, Set: op.Set})
	}
}

func TestInvalidTimeouts(t *testing.T) {
	c := open(t)
	expiring := Set{Name: "x", Type: HashIP, Family: IPv4, Timeout: 5}
	lasting := Set{Name: "y", Type: HashIP, Family: IPv4}
	apply(t, c, Op{Kind: Create, Set: expiring}, Op{Kind: Create, Set: lasting})
	for _, op := range []Op{
		{Kind: Add, Set: expiring, Elements: []Element{withTimeout("10.0.0.1", "", 2147484)}},
		{Kind: Add, Set: lasting, Elements: []Element{withTimeout("10.0.0.1", "", 1)}},
	} {
		if err := c.Apply([]Op{op}); err == nil || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: %v", op, err)
		}
	}
	apply(t, c, Op{Kind: Delete, Set: lasting, Elements: []Element{withTimeout("10.0.0.1", "", 1)}})
}
