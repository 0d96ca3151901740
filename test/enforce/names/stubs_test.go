package names

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// stubResolver is a program that looks names up and connects to their addresses at once.
type stubResolver struct {
	name, program string
	// resolved is the systemd-resolved that runs in the pod and that the program asks; empty if it asks CoreDNS.
	resolved string
}

// stubResolvers builds the programs of testdata.
func stubResolvers(t *testing.T) []stubResolver {
	t.Helper()
	dir := t.TempDir()
	build := func(name string, command ...string) stubResolver {
		program := filepath.Join(dir, name)
		cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], "-o", program)...)
		if name == "go" {
			cmd.Args = append(cmd.Args, "testdata/lookup.go")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		} else {
			cmd.Args = append(cmd.Args, "testdata/lookup.c")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return stubResolver{name: name, program: program}
	}
	stubs := []stubResolver{build("glibc", "gcc"), build("musl", "musl-gcc", "-static"), build("go", "go", "build")}
	resolved := os.Getenv(resolvedVariable)
	if _, err := os.Stat(filepath.Join(resolved, "systemd-resolved")); err != nil {
		t.Fatalf("$%s: %v", resolvedVariable, err)
	}
	return append(stubs, stubResolver{name: "systemd", program: stubs[0].program, resolved: resolved})
}

// patience is how long a connection may take that is allowed.
var patience = await.Scaled(5 * time.Second)

// applications is a cluster whose pods look names up, each name once: nothing has learned its addresses before.
type applications struct {
	*e2e.Cluster
	dir    string // has the configuration of each pod's resolver
	number int    // of the last name
}

// lookUpAsApplications has a pod for each stub resolver and family of CoreDNS's address.
func lookUpAsApplications(t *testing.T, w *e2e.Cluster, stubs []stubResolver) {
	t.Helper()
	a := &applications{Cluster: w, dir: t.TempDir(), number: 1}
	objects := []e2e.Change{base(), byName("*.example.com")}
	each := func(f func(pod string, family int, stub stubResolver)) {
		e2e.EachFamily(func(family int) {
			for _, stub := range stubs {
				f(stub.name+strconv.Itoa(family), family, stub)
			}
		})
	}
	each(func(pod string, family int, stub stubResolver) {
		w.AddPod(t, "node1", pod, lab.PodConfig{})
		objects = append(objects, e2e.Pod("shop/"+pod, e2e.Labelled("app=web")))
		a.configure(t, pod, family, stub)
	})
	a.configure(t, "db", 4, stubs[0])
	w.Begin(t, e2e.Do(objects...), "--domain-grace", "0s")
	each(func(pod string, _ int, stub stubResolver) {
		t.Run(pod, func(t *testing.T) {
			a.reachesListed(t, pod, stub)
			a.reachesNoOthers(t, pod, stub, stubs[0])
			if stub.resolved != "" {
				a.followsAliases(t, pod)
			}
		})
	})
}

// startResolved starts systemd-resolved without systemd, with the capabilities of its unit. $1 is its configuration,
// and $2 the directory that it is in.
const startResolved = `set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/resolve /run/systemd/resolved.conf.d
chown 65534:65534 /run/systemd/resolve
install -m 644 "$1" /run/systemd/resolved.conf.d/
cp -r "$2" /run/resolved
export LD_LIBRARY_PATH=/run/resolved SYSTEMD_LOG_TARGET=console
caps=-all,+setpcap,+net_raw,+net_bind_service
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps "$caps" --ambient-caps "$caps" \
	/run/resolved/systemd-resolved`

// configure writes a pod's resolv.conf, and starts its systemd-resolved.
func (a *applications) configure(t *testing.T, pod string, family int, stub stubResolver) {
	t.Helper()
	server := e2e.ServiceAddr(family, clusterDNS, 53).Addr().String()
	if stub.resolved != "" {
		path := filepath.Join(a.dir, pod+".resolved.conf")
		e2e.WriteFile(t, path, "[Resolve]\nDNS="+server+"\nDomains="+search+"\nLLMNR=no\nMulticastDNS=no\n")
		keepRunning(t, a.Hosts[pod].Command(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c",
			startResolved, "resolved", path, stub.resolved))
		server = "127.0.0.53"
		await.That(t, "systemd-resolved answers", func() bool {
			c, err := a.Hosts[pod].DialContext(t.Context(), "tcp", server+":53")
			return err == nil && c.Close() == nil
		})
	}
	conf := "nameserver " + server + "\nsearch " + search + "\noptions ndots:5\n"
	e2e.WriteFile(t, filepath.Join(a.dir, pod+".resolv.conf"), conf)
	e2e.WriteFile(t, filepath.Join(a.dir, "nsswitch.conf"), "hosts: dns\n")
}

// next returns a name that was not looked up. $k stands for its number.
func (a *applications) next(pattern string) string {
	a.number++
	return strings.ReplaceAll(pattern, "$k", strconv.Itoa(a.number))
}

// lookUp has a pod look lists of names up, all lists at once. It returns which addresses of each name are reached
// within a time, in order, and what is wrong.
func (a *applications) lookUp(t *testing.T, pod string, stub stubResolver, limit time.Duration, lists ...[]string) (
	reached map[string][]string, wrong []string) {
	t.Helper()
	var clients sync.WaitGroup
	outputs := make([]string, len(lists))
	for i, names := range lists {
		command := []string{stub.program, strconv.Itoa(serverPort), strconv.FormatInt(limit.Milliseconds(), 10)}
		clients.Go(func() { outputs[i] = a.run(t, pod, append(command, names...)...) })
	}
	clients.Wait()
	reached = map[string][]string{}
	for line := range strings.Lines(strings.Join(outputs, "")) {
		if fields := strings.Fields(line); len(fields) == 2 {
			reached[fields[0]] = append(reached[fields[0]], fields[1])
		} else {
			wrong = append(wrong, line)
		}
	}
	for _, addrs := range reached {
		slices.Sort(addrs)
	}
	return reached, wrong
}

// run runs a command in a pod, with the configuration of the pod's resolver.
func (a *applications) run(t *testing.T, pod string, command ...string) string {
	ctx, cancel := context.WithTimeout(t.Context(), 4*e2e.Timeout)
	defer cancel()
	args := []string{"--mount", "--propagation", "private", "sh", "-c",
		`mount --bind "$1.resolv.conf" /etc/resolv.conf &&
mount --bind "$2/nsswitch.conf" /etc/nsswitch.conf && shift 2 && exec "$@"`, "lookup", filepath.Join(a.dir, pod), a.dir}
	out, err := a.Hosts[pod].Command(ctx, "unshare", append(args, command...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", pod, err, out)
	}
	return string(out)
}

// addresses returns the addresses of a name, in order.
func addresses(name string) []string {
	label, _, _ := strings.Cut(name, ".")
	k, _ := strconv.Atoi(label[1:]) // it is a number
	out := []string{outside(4, byte(k)).String(), outside(6, byte(k)).String()}
	slices.Sort(out)
	return out
}

// wantsAll fails the test if not all addresses of names were reached.
func wantsAll(t *testing.T, pod string, names []string, reached map[string][]string, wrong []string) {
	t.Helper()
	for _, name := range names {
		if want := addresses(name); !slices.Equal(reached[name], want) {
			t.Errorf("%s reaches %v of %s, want %v\n%s", pod, reached[name], name, want, strings.Join(wrong, ""))
		}
	}
}

// followsAliases has a pod look an alias up, first its IPv4 address. For the other one, the cache in the pod asks for
// the name that the alias is of, which the policy does not have.
func (a *applications) followsAliases(t *testing.T, pod string) {
	t.Helper()
	name := a.next("k$k.example.com")
	for _, family := range []int{4, 6} {
		addr := outside(family, byte(a.number))
		out := a.run(t, pod, "getent", "ahostsv"+strconv.Itoa(family), name)
		if !strings.HasPrefix(out, addr.String()+" ") {
			t.Fatalf("%s is told about %s: %s", pod, name, out)
		}
		if err := dial(a.Hosts[pod], addr, family == 4); (err == nil) != (family == 4) {
			t.Errorf("%s reaches %s of %s: %v", pod, addr, name, err)
		}
	}
}

// reachesListed has a pod look names up that the policy has: addresses, aliases, and names of a stub zone. A cache in
// the pod asks for the names that aliases are of, so that the policy has to have these too.
func (a *applications) reachesListed(t *testing.T, pod string, stub stubResolver) {
	t.Helper()
	before := dropped(a.Cluster)
	lists, alias := make([][]string, 4), "k"
	if stub.resolved != "" {
		alias = "c"
	}
	for i := range lists {
		for _, pattern := range []string{"n$k.example.com", alias + "$k.example.com", "n$k.stub.example.com",
			alias + "$k.stub.example.com", "N$k.Example.COM"} {
			lists[i] = append(lists[i], a.next(pattern))
		}
	}
	reached, wrong := a.lookUp(t, pod, stub, patience, lists...)
	wantsAll(t, pod, slices.Concat(lists...), reached, wrong)
	if n := dropped(a.Cluster) - before; n > 0 {
		t.Errorf("%d packets of %s were dropped\n%s", n, pod, lab.DumpFilter(a.Nodes()[0]))
	}
}

// reachesNoOthers has a pod look names up that the policy does not have, also an alias of one that it has. db, which
// the policy is not for, reaches them.
func (a *applications) reachesNoOthers(t *testing.T, pod string, stub, glibc stubResolver) {
	t.Helper()
	names := []string{a.next("n$k.example.org"), a.next("n$k.stub.example.org"), a.next("a$k.example.org")}
	before := dropped(a.Cluster)
	reached, wrong := a.lookUp(t, pod, stub, 500*time.Millisecond, names[:1], names[1:2], names[2:])
	if len(reached) > 0 || len(wrong) != 2*len(names) {
		t.Errorf("%s reaches %v, which the policy does not name, and %d addresses are not reached, want %d\n%s", pod,
			reached, len(wrong), 2*len(names), strings.Join(wrong, ""))
	}
	if n := dropped(a.Cluster) - before; n < 2*len(names) {
		t.Errorf("%d packets of %s were dropped, want one for each address at least", n, pod)
	}
	reached, wrong = a.lookUp(t, "db", glibc, patience, names)
	wantsAll(t, "db", names, reached, wrong)
}
