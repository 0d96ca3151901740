package npc_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/walk"
	"github.com/weave-npc/weave-npc/test/paper"
)

// world is a model and the kernels that its plans are applied to.
type world struct {
	*testing.T
	model   *told
	kernels [2]*paper.Kernel
	// addrs holds the names that checks use: pod or other name -> addresses.
	addrs map[string][]netip.Addr
	pods  map[string]npc.Pod
	// adopted says that the kernels were read since the last plan.
	adopted bool
	// transactions are the texts of those applied since they were last taken.
	transactions []string
	// explained is set if verdicts are also compared with those that explain gives, which does not know the gate.
	explained bool
	// live is what applies the plans to a real kernel, of which kernels then are copies; nil on paper.
	live *live
	// registry has the metrics of the syncer that was made last.
	registry *prometheus.Registry
}

const node = "node1"

// told is a model, and a cluster of the same objects that policies are explained by.
type told struct {
	*npc.Model
	cluster *cluster.Cluster
}

func newTold(c npc.Config) *told {
	t := &told{npc.New(c), cluster.New()}
	t.cluster.LegacyNetpol = c.LegacyNetpol
	t.cluster.SetNodeAddrs(node, nil)
	return t
}

func (t *told) SetNamespace(n npc.Namespace) { t.Model.SetNamespace(n); t.cluster.SetNamespace(n) }
func (t *told) SetPod(p npc.Pod)             { t.Model.SetPod(p); t.cluster.SetPod(p) }
func (t *told) SetNodeAddrs(addrs []netip.Addr) {
	t.Model.SetNodeAddrs(addrs)
	t.cluster.SetNodeAddrs(node, addrs)
}
func (t *told) SetPolicy(p *networkingv1.NetworkPolicy) {
	t.Model.SetPolicy(p)
	t.cluster.SetPolicy(p)
}

func (t *told) DeleteNamespace(name string, uid types.UID) {
	t.Model.DeleteNamespace(name, uid)
	t.cluster.DeleteNamespace(name, uid)
}

func (t *told) DeletePod(namespace, name string, uid types.UID) {
	t.Model.DeletePod(namespace, name, uid)
	t.cluster.DeletePod(namespace, name, uid)
}

func (t *told) DeletePolicy(namespace, name string, uid types.UID) {
	t.Model.DeletePolicy(namespace, name, uid)
	t.cluster.DeletePolicy(namespace, name, uid)
}

// newWorld starts with nothing known, and takes configuration changes.
func newWorld(t *testing.T, configure ...func(*npc.Config)) *world {
	w := newModelWorld(t, configure...)
	w.adopt()
	return w
}

// newModelWorld has a model that has not adopted anything.
func newModelWorld(t *testing.T, configure ...func(*npc.Config)) *world {
	c := npc.Config{NodeName: node, PodInterface: "cni0", BridgePort: "vethwe-bridge", Hook: npc.HookForward, AllowAction: "ACCEPT",
		Gate: npc.GateAuto, NFLogGroup: 86, AllowMcast: true, MaxListSize: 1024,
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24"), netip.MustParsePrefix("fd32:1::/64")}}
	for _, f := range configure {
		f(&c)
	}
	w := &world{T: t, model: newTold(c), kernels: paper.New(),
		addrs: map[string][]netip.Addr{}, pods: map[string]npc.Pod{}}
	w.addr("outside", "198.51.100.7", "2001:db8::7")
	return w
}

func (w *world) adopt() {
	w.adopted = true
	for f, k := range w.kernels {
		sets, seen := k.Read()
		w.model.Adopt(npc.Family(f), sets, seen)
	}
}

func (w *world) addr(name string, addrs ...string) {
	w.addrs[name] = nil
	for _, a := range addrs {
		w.addrs[name] = append(w.addrs[name], netip.MustParseAddr(a))
	}
}

// namespace sets a namespace with labels as "key=value".
func (w *world) namespace(name string, labels ...string) {
	l := labelMap(labels)
	l["kubernetes.io/metadata.name"] = name
	w.model.SetNamespace(npc.Namespace{Name: name, UID: types.UID("ns-" + name), Labels: l})
}

func labelMap(labels []string) map[string]string {
	l := map[string]string{}
	for _, kv := range labels {
		k, v, _ := strings.Cut(kv, "=")
		l[k] = v
	}
	return l
}

// pod sets a pod of this node, "namespace/name", with addresses (separated by commas) and labels.
func (w *world) pod(name, addrs string, labels ...string) { w.setPod(name, addrs, labels, nil) }

// remote sets a pod of another node.
func (w *world) remote(name, addrs string, labels ...string) {
	w.setPod(name, addrs, labels, func(p *npc.Pod) { p.Node = "node2" })
}

func (w *world) setPod(name, addrs string, labels []string, change func(*npc.Pod)) {
	ns, n, _ := strings.Cut(name, "/")
	p := npc.Pod{Namespace: ns, Name: n, UID: types.UID(name), Labels: labelMap(labels), Node: node}
	if addrs != "" {
		w.addr(name, strings.Split(addrs, ",")...)
		p.Addrs = w.addrs[name]
	}
	if change != nil {
		change(&p)
	}
	w.pods[name] = p
	w.model.SetPod(p)
}

// relabel gives a pod other labels.
func (w *world) relabel(name string, labels ...string) {
	p := w.pods[name]
	p.Labels = labelMap(labels)
	w.pods[name] = p
	w.model.SetPod(p)
}

func (w *world) deletePod(name string) {
	p := w.pods[name]
	w.model.DeletePod(p.Namespace, p.Name, p.UID)
}

// policy sets a policy "namespace/name" with a spec in YAML.
func (w *world) policy(name, spec string) {
	w.Helper()
	ns, n, _ := strings.Cut(name, "/")
	o := &networkingv1.NetworkPolicy{}
	if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
		w.Fatal(err)
	}
	o.Namespace, o.Name, o.UID = ns, n, types.UID(name)
	w.model.SetPolicy(o)
}

func (w *world) deletePolicy(name string) {
	ns, n, _ := strings.Cut(name, "/")
	w.model.DeletePolicy(ns, n, types.UID(name))
}

// sync plans and applies until nothing is left to do.
func (w *world) sync() {
	w.Helper()
	w.model.SetSynced()
	w.again(false)
}

// boot applies what is to be done before all objects are known, on a node that has just come up.
func (w *world) boot() {
	w.Helper()
	if w.live != nil {
		w.live.boot(w)
		return
	}
	for f, tx := range w.model.PlanStart(true) {
		if err := w.kernels[f].Apply(tx); err != nil {
			w.Fatal(err)
		}
	}
}

// again plans and applies once all objects are known.
func (w *world) again(tidy bool) {
	w.Helper()
	if w.live != nil {
		w.live.again(w)
		return
	}
	told := tidy || w.adopted
	w.adopted = false
	select {
	case <-w.model.Wake():
		told = true
	default:
	}
	for {
		waits := false
		for f, tx := range w.model.Plan(tidy) {
			if tx.Empty() {
				continue
			}
			if !told {
				w.Fatalf("nobody was told that there is something to plan:\n%s", tx)
			}
			w.transactions = append(w.transactions, tx.String())
			if err := w.kernels[f].Apply(tx); err != nil {
				w.Fatal(err)
			}
			for _, r := range tx.Forget {
				waits = true
				w.model.Forgotten(npc.Family(f), []netip.Addr{r.Addr})
			}
		}
		if !w.model.Resume() && !waits {
			return
		}
	}
}

// tidyUp removes what was left for later.
func (w *world) tidyUp() {
	w.Helper()
	w.again(true)
	w.again(true)
}

// taken returns the transactions since the last call.
func (w *world) taken() string {
	text := strings.Join(w.transactions, "")
	w.transactions = nil
	return text
}

var protocolNumbers = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP, "icmp": unix.IPPROTO_ICMP}

// expect checks verdicts, one a line: "from > to tcp:80 = yes". Both families are checked that both ends have.
func (w *world) expect(lines string) {
	w.Helper()
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		var from, to, what, want string
		if n, err := fmt.Sscanf(line, "%s > %s %s = %s", &from, &to, &what, &want); n != 4 || err != nil {
			w.Fatalf("cannot read %q: %v", line, err)
		}
		name, port, _ := strings.Cut(what, ":")
		number, _ := strconv.Atoi(port)
		checked := false
		for _, src := range w.find(from) {
			for _, dst := range w.find(to) {
				if src.Is4() != dst.Is4() {
					continue
				}
				checked = true
				v := w.judge(walk.Packet{Src: src, Dst: dst, Protocol: protocolNumbers[name], DstPort: uint16(number), In: passes(from), Out: passes(to)})
				if v.Accepted != (want == "yes") {
					w.Errorf("%s: %s > %s: accepted = %t, by %q", strings.TrimSpace(line), src, dst, v.Accepted, v.By)
				}
				e := w.explain(src, dst, protocolNumbers[name], uint16(number))
				if w.explained && !notByPolicies(e) && e.Allowed != (want == "yes") {
					w.Errorf("%s: %s > %s: explained as allowed = %t:\n%s", strings.TrimSpace(line), src, dst, e.Allowed, e)
				}
			}
		}
		if !checked {
			w.Fatalf("%q has no addresses of one family", line)
		}
	}
}

// passes returns the interface that packets of an end pass.
func passes(end string) string {
	if end == "outside" {
		return "eth0"
	}
	return "cni0"
}

// notByPolicies reports whether a verdict is not for policies: it is between a pod and its node, which is not forwarded, or a pod waits for its
// address, which is for the gate.
func notByPolicies(v explain.Verdict) bool {
	return slices.ContainsFunc([]explain.Reason{v.Egress.Reason, v.Ingress.Reason}, func(r explain.Reason) bool {
		return r == "own node" || r == "waiting for its address"
	})
}

// explain returns the verdict of the policies themselves, as far as the node gives it.
func (w *world) explain(src, dst netip.Addr, protocol uint8, port uint16) explain.Verdict {
	return explain.Explain(w.model.cluster.View(), flow.Flow{From: flow.End{Addr: src}, To: flow.End{Addr: dst}, Node: node,
		Service: flow.Service{Protocol: protocol, Port: port}})
}

func (w *world) find(name string) []netip.Addr {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a}
	}
	if w.addrs[name] == nil {
		w.Fatalf("nobody is called %q", name)
	}
	return w.addrs[name]
}

func (w *world) judge(p walk.Packet) walk.Verdict {
	w.Helper()
	k := w.kernels[npc.IPv4]
	if p.Src.Is6() {
		k = w.kernels[npc.IPv6]
	}
	v, err := k.Simulate(p)
	if err != nil {
		w.Fatal(err)
	}
	return v
}
