package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/enforce/random"
	"github.com/weave-npc/weave-npc/test/lab"
)

// programs are those of iptables, as ones that can be made to fail.
type programs struct{ dir string }

// newPrograms makes programs that a file controls: they fail, hang, or refuse rules for port 7777; otherwise they work
// as usual.
func newPrograms(t *testing.T, w *e2e.Cluster) programs {
	t.Helper()
	dir, err := os.MkdirTemp(w.Dir(), "programs-")
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		writeProgram(t, dir, family+"-"+string(w.Backend)+"-restore", `
fail) echo "$name: no" >&2; exit 1;;
hang) exec sleep 600;;
note) touch `+dir+`/started;;
refuse)
	input=$(cat)
	line=$(printf '%s\n' "$input" | grep -n -m 1 -e "--dport 7777" | cut -d: -f1)
	[ -z "$line" ] || { echo "$name: line $line failed" >&2; exit 1; }
	printf '%s\n' "$input" | $real "$@"
	exit;;`)
	}
	return programs{dir}
}

func writeProgram(t *testing.T, dir, name, modes string) {
	t.Helper()
	script := fmt.Sprintf("#!/bin/sh\nname=%s\nreal=/usr/sbin/$name\ncase \"$(cat %s/mode 2>/dev/null)\" in%s\nesac\nexec $real \"$@\"\n",
		name, dir, modes)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
}

// mode makes the programs fail as a mode prescribes; the mode none repairs them.
func (p programs) mode(t *testing.T, mode string) {
	t.Helper()
	e2e.WriteFile(t, filepath.Join(p.dir, "mode"), mode)
}

// lock returns the lock of iptables-legacy, which no other node shares.
func (p programs) lock() string { return filepath.Join(p.dir, "lock") }

// wrap runs a command such that it finds the programs first.
func (p programs) wrap() []string {
	return []string{"env", "PATH=" + p.dir + ":" + os.Getenv("PATH"), "XTABLES_LOCKFILE=" + p.lock()}
}

// ailment is something that keeps iptables from being written for a while.
type ailment struct {
	name, backend string // backend is empty for both
	begin         func(t *testing.T, p programs) (end func())
	says          string // in readiness
}

func ailments() []ailment {
	mode := func(m string) func(*testing.T, programs) func() {
		return func(t *testing.T, p programs) func() {
			p.mode(t, m)
			return func() { p.mode(t, "") }
		}
	}
	return []ailment{
		{name: "iptables_restore_fails", begin: mode("fail"), says: ": no"},
		{name: "iptables_restore_hangs", begin: mode("hang"), says: "deadline exceeded"},
		{name: "iptables_restore_is_missing", says: "no such file", begin: func(t *testing.T, p programs) func() {
			move := func(from, to string) {
				found, err := filepath.Glob(filepath.Join(p.dir, "*"+from))
				if err != nil || len(found) != 2 {
					t.Fatalf("programs: %v, %v", found, err)
				}
				for _, path := range found {
					if err := os.Rename(path, strings.TrimSuffix(path, from)+to); err != nil {
						t.Fatal(err)
					}
				}
			}
			move("-restore", "-restore.away")
			return func() { move("-restore.away", "-restore") }
		}},
		{name: "the_lock_is_held_for_thirty_seconds", backend: "legacy", says: "lock",
			begin: func(t *testing.T, p programs) func() {
				release := p.hold(t)
				begin := time.Now()
				return func() {
					time.Sleep(30*time.Second - time.Since(begin))
					release()
				}
			}},
	}
}

// hold holds the lock until the returned function is called.
func (p programs) hold(t *testing.T) (release func()) {
	t.Helper()
	lock, err := os.OpenFile(p.lock(), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { _ = lock.Close() }
}

// TestS76_AHeldLockDelaysNoPod: while another process holds the lock of iptables-legacy, and rules wait for it, no
// program that would wait for it is started, and pods are enforced by sets.
func TestS76_AHeldLockDelaysNoPod(t *testing.T) {
	heldLockDelaysNoPod(t, ailing(), e2e.Policy("shop/db", `podSelector: {matchLabels: {app: db}}`), "-*>db ")
}

// TestS76_AHeldLockDelaysNoPeerOfUnitedRules: the same for peers of rules that are one in the kernel, while the rule that
// is to replace it waits.
func TestS76_AHeldLockDelaysNoPeerOfUnitedRules(t *testing.T) {
	state := ailing()
	for i := range 6 {
		state = e2e.Do(state, fromNumber(i))
	}
	heldLockDelaysNoPod(t, state, fromNumber(6), "")
}

// fromNumber has a policy of its own let pods with a number reach shop/web.
func fromNumber(i int) e2e.Change {
	return e2e.Policy(fmt.Sprint("shop/from-", i), fmt.Sprintf(`
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {number: n%d}}}]}]`, i))
}

// heldLockDelaysNoPod begins with a state. An edit comes while the lock is held, which isolates what is given.
func heldLockDelaysNoPod(t *testing.T, begin, edit e2e.Change, isolates string) {
	t.Helper()
	w, p := startWithPrograms(t, lab.Legacy, begin)
	d := w.Daemons[0]
	d.Log.Expect("cannot bring the kernel up to date") // this may take longer than it is silent about
	release := p.hold(t)
	p.mode(t, "note")
	policy := e2e.Do(begin, edit)
	w.Source.Write(t, w.Objects(policy))
	d.AwaitLine(t, 0, "manifests read.* added=1")
	for _, s := range []struct {
		pod  e2e.Change
		want string
	}{
		{e2e.Pod("ops/mon", e2e.Labelled("app=db")), "-*>web " + isolates + "+db,mon>web"},
		{e2e.Pod("ops/mon", e2e.Labelled("app=none")), "-*>web " + isolates + "+db>web"},
	} {
		w.Source.Write(t, w.Objects(e2e.Do(policy, s.pod)))
		w.Expect(t, e2e.Wants{"tcp 80": s.want})
	}
	if _, err := os.Stat(filepath.Join(p.dir, "started")); err == nil {
		t.Error("a program was started that waits for the lock")
	}
	release()
	w.Apply(t, w.Objects(policy))
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web " + isolates + "+db>web"})
	if _, err := os.Stat(filepath.Join(p.dir, "started")); err != nil {
		t.Error("rules were not written by the programs that note it", err)
	}
	d.AwaitReady(t)
}

// TestWhatCannotBeWrittenHarmsNothingElse checks that, while iptables cannot be written on a node, policies stay
// enforced, a new policy isolates its pods, and new pods get what is allowed already, and that the rest follows once
// iptables works again.
func TestWhatCannotBeWrittenHarmsNothingElse(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, a := range ailments() {
			if a.backend != "" && a.backend != string(backend) {
				continue
			}
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				w, p := startWithPrograms(t, backend, ailing())
				d := w.Daemons[0]
				d.Log.Expect("cannot bring the kernel up to date|cannot look for drift")
				stream := stream(t, w)
				end := a.begin(t, p)
				late := e2e.Do(ailing(), e2e.Pod("ops/copy", e2e.Labelled("app=db")), e2e.Namespace("ops", "team=a"),
					e2e.Policy("shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`))
				w.Source.Write(t, w.Objects(late))
				await.Within(t, e2e.Timeout, func() bool {
					status, why := d.Get("/readyz")
					return status == http.StatusServiceUnavailable && strings.Contains(why, a.says)
				}, func() string { return "readiness does not say why\n" + d.Log.String() })
				// Sets are kept up to date: copy may reach web now, and no host may reach db yet.
				w.Expect(t, e2e.Wants{"tcp 80": "-*>web +copy,db>web -*>db"})
				end()
				w.Timeout = 4 * e2e.Timeout // what fails is tried again after ever longer pauses
				w.Apply(t, w.Objects(late))
				random.Compare(t, w, w.Objects(late))
				d.AwaitReady(t)
				endStream(t, w, stream)
			})
		}
	})
}

// ailing returns the state when iptables cannot be written any more.
func ailing() e2e.Change {
	return e2e.Do(e2e.Base(), e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}]}]`))
}

// TestARefusedRuleHarmsNothingElse has the kernel refuse one rule of a policy: its other rules and all other policies
// are enforced.
func TestARefusedRuleHarmsNothingElse(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, p := startWithPrograms(t, backend, ailing())
		d := w.Daemons[0]
		d.Log.Expect("the kernel refuses what a policy needs")
		p.mode(t, "refuse")
		stream := stream(t, w)
		with := func(ports string) e2e.Change {
			return e2e.Do(ailing(), e2e.Policy("shop/more",
				`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [`+ports+`]}]}`),
				e2e.Policy("ops/mon", `{podSelector: {matchLabels: {app: mon}}, ingress: [{ports: [{port: 81}]}]}`))
		}
		w.Source.Write(t, w.Objects(with(`{port: 81}, {port: 7777, protocol: UDP}`)))
		d.AwaitLine(t, 0, "the kernel refuses what a policy needs.*shop/more")
		w.Expect(t, e2e.Wants{"tcp 81": "", "tcp 80": "-*>web +db>web -*>mon"})
		if status, why := d.Get("/readyz"); status != http.StatusServiceUnavailable ||
			!strings.Contains(why, "shop/more") {
			t.Errorf("readiness is %d, %s", status, why)
		}
		w.Apply(t, w.Objects(with(`{port: 81}`)))
		random.Compare(t, w, w.Objects(with(`{port: 81}`)))
		d.AwaitReady(t)
		endStream(t, w, stream)
	})
}

// startWithPrograms starts weave-npc on both nodes, on the first one with programs that can be made to fail.
func startWithPrograms(t *testing.T, backend lab.Backend, state e2e.Change) (*e2e.Cluster, programs) {
	t.Helper()
	w := e2e.New(t, backend, lab.Config{})
	p := newPrograms(t, w)
	m := w.FromManifests(t, state)
	w.StartEach(t, func(i int, n *lab.Node) *e2e.Daemon {
		d := e2e.NewDaemon(n, w.DaemonArgs(i, "--manifests", m.Dir)...)
		if i == 0 {
			d.Wrap = p.wrap()
		}
		return d
	})
	for _, d := range w.Daemons {
		d.AwaitReady(t)
	}
	return w, p
}

// stream opens flows that have the same verdicts in all states of these tests.
func stream(t *testing.T, w *e2e.Cluster) *lab.Stream {
	t.Helper()
	var flows []lab.StreamFlow
	e2e.EachFamily(func(family int) {
		for _, f := range []struct {
			from, to string
			denied   bool
		}{{"db", "web", false}, {"web", "api", false}, {"mon", "copy", false}, {"mon", "web", true},
			{"api", "web", true}} {
			flow := lab.StreamFlow{From: w.Hosts[f.from], To: w.Hosts[f.to], Family: family, Denied: f.denied}
			udp, icmp := flow, flow
			udp.Proto, udp.Port, icmp.Proto = "udp", e2e.StreamPort, "icmp"
			flows = append(flows, udp, icmp)
		}
	})
	s, err := lab.NewStream(200, flows)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func endStream(t *testing.T, w *e2e.Cluster, s *lab.Stream) {
	t.Helper()
	result, err := s.Close()
	if err != nil {
		t.Fatal(err)
	}
	if result.WrongAccepts > 0 || result.WrongDrops > 0 {
		t.Errorf("of %d flows %d passed wrongly and %d were dropped wrongly\n%s\n%s", result.Opened,
			result.WrongAccepts,
			result.WrongDrops, strings.Join(result.Wrong, "\n"), w.State())
	}
	t.Logf("%d flows", result.Opened)
}
