// Package cluster is a small Kubernetes cluster for tests, as one of its nodes sees it: namespaces, pods and policies
// by short names, the model that is notified of them, and the kernel that the model's transactions are applied to. That
// is an in-memory kernel or the real one, in this network namespace.
//
//	w := cluster.New(t)
//	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
//	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
//	w.Sync()
//	w.Expect("outside > a/web tcp:80 = no")
package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/paper"
)

// Cluster is a model and the kernels that its transactions are applied to.
type Cluster struct {
	*testing.T
	Model *Model
	// Kernels are by family; copies of the real kernel if there is a syncer.
	Kernels [2]*paper.Kernel
	// Addrs holds the names that Expect uses: pod or other name -> addresses.
	Addrs map[string][]netip.Addr
	// Pods holds the pods as they were last set: namespace/name -> pod.
	Pods map[string]npc.Pod
	// Explained makes Expect compare each verdict with that of package explain, which does not know the fail-closed
	// filter.
	Explained bool
	// Loaded reports that the kernels were read since the last plan, so that there may be something to plan that the
	// model did not announce.
	Loaded bool
	// Live applies the transactions to the real kernel. It is nil with in-memory kernels.
	Live *Live
	// Registry has the metrics of the syncer that was made last.
	Registry *prometheus.Registry

	learned []named
	// transactions are the texts of those applied since the last call of Applied.
	transactions []string
}

// Node is the name of the node whose pods are local.
const Node = "node1"

// New returns a cluster without objects, with in-memory kernels, whose model has read the kernels. The functions change
// the model's configuration.
func New(t *testing.T, configure ...func(*enforce.Config)) *Cluster {
	w := NewUnsynced(t, configure...)
	w.Load()
	return w
}

// NewUnsynced returns a cluster without objects, with in-memory kernels, whose model has not read the kernels.
func NewUnsynced(t *testing.T, configure ...func(*enforce.Config)) *Cluster {
	c := enforce.Config{NodeName: Node, PodInterface: "cni0", BridgePort: "vethwe-bridge", ForwardJump: true,
		AllowAction: "ACCEPT", FailClosed: enforce.FailClosedAuto, NFLogGroup: 86, AllowMcast: true, MaxListSize: 1024,
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24"), netip.MustParsePrefix("fd32:1::/64")}}
	for _, f := range configure {
		f(&c)
	}
	w := &Cluster{T: t, Model: newModel(c), Kernels: paper.New(),
		Addrs: map[string][]netip.Addr{}, Pods: map[string]npc.Pod{}}
	w.Addr("outside", "198.51.100.7", "2001:db8::7")
	return w
}

// Load makes the model read the kernels.
func (w *Cluster) Load() {
	w.Loaded = true
	for f, k := range w.Kernels {
		sets, seen := k.Read()
		w.Model.LoadChains(npc.Family(f), seen)
		w.Model.LoadSets(npc.Family(f), sets)
	}
}

// Addr gives a name addresses, for Expect.
func (w *Cluster) Addr(name string, addrs ...string) {
	w.Addrs[name] = fixture.Addrs(strings.Join(addrs, " "))
}

// Namespace sets a namespace with labels as "key=value".
func (w *Cluster) Namespace(name string, labels ...string) {
	n := fixture.Namespace(name + " " + strings.Join(labels, " "))
	n.UID = types.UID("ns-" + name)
	w.Model.SetNamespace(n)
}

// Pod sets a pod of this node, "namespace/name", with addresses (separated by commas) and labels.
func (w *Cluster) Pod(name, addrs string, labels ...string) { w.SetPod(name, addrs, labels, nil) }

// Remote sets a pod of another node.
func (w *Cluster) Remote(name, addrs string, labels ...string) {
	w.SetPod(name, addrs, labels, func(p *npc.Pod) { p.Node = "node2" })
}

// SetPod sets a pod of this node, which change may alter before if it is not nil.
func (w *Cluster) SetPod(name, addrs string, labels []string, change func(*npc.Pod)) {
	p := fixture.Pod(name + " " + Node + " " + addrs + " " + strings.Join(labels, " "))
	if addrs != "" {
		w.Addrs[name] = p.Addrs
	}
	if change != nil {
		change(&p)
	}
	w.Pods[name] = p
	w.Model.SetPod(p)
}

// Relabel gives a pod other labels.
func (w *Cluster) Relabel(name string, labels ...string) {
	p := w.Pods[name]
	p.Labels = fixture.Labels(strings.Join(labels, " "))
	w.Pods[name] = p
	w.Model.SetPod(p)
}

// DeletePod deletes a pod by its name.
func (w *Cluster) DeletePod(name string) {
	p := w.Pods[name]
	w.Model.DeletePod(p.Namespace, p.Name, p.UID)
}

// Policy sets a policy "namespace/name" with a spec in YAML.
func (w *Cluster) Policy(name, spec string) {
	w.Helper()
	w.Model.SetPolicy(fixture.Policy(w, name, spec))
}

// DeletePolicy deletes a policy by its name.
func (w *Cluster) DeletePolicy(name string) {
	ns, n, _ := strings.Cut(name, "/")
	w.Model.DeletePolicy(ns, n, types.UID(name))
}

// ClusterPolicy sets a cluster network policy with a spec in YAML.
func (w *Cluster) ClusterPolicy(name, spec string) {
	w.Helper()
	w.Model.SetClusterPolicy(fixture.ClusterPolicy(w, name, spec))
}

// Sync reports to the model that all objects are known, plans, and applies the transactions until nothing is left to
// do.
func (w *Cluster) Sync() {
	w.Helper()
	w.Model.SetSynced()
	w.Again(false)
}

// Boot applies the transactions that come before all objects are known, on a node that has just come up.
func (w *Cluster) Boot() {
	w.Helper()
	if w.Live != nil {
		w.Live.boot(w)
		return
	}
	w.PlanStart(true, func(tx dataplane.Transaction) {
		if err := w.Kernels[tx.Family].Apply(tx); err != nil {
			w.Fatal(err)
		}
	})
}

// PlanStart carries out what is planned before all objects are known, and commits it to the model.
func (w *Cluster) PlanStart(boot bool, carryOut func(dataplane.Transaction)) {
	for _, tx := range w.Model.PlanStart(boot, [2]dataplane.Known{}) {
		carryOut(tx)
		w.Model.Commit(tx, tx.Taken())
	}
}

// Plan plans once all objects are known, and commits the plan to the model. The caller has to carry it out.
func (w *Cluster) Plan(collectGarbage bool) [2]dataplane.Transaction {
	txs := w.Model.Plan(collectGarbage, [2]dataplane.Known{})
	for _, tx := range txs {
		w.Model.Commit(tx, tx.Taken())
	}
	return txs
}

// Again plans and applies once all objects are known. With collectGarbage it also removes what nothing uses any more.
func (w *Cluster) Again(collectGarbage bool) {
	w.Helper()
	if w.Live != nil {
		w.Live.again(w)
		return
	}
	announced := collectGarbage || w.Loaded
	w.Loaded = false
	select {
	case <-w.Model.Wake():
		announced = true
	default:
	}
	for {
		waits := false
		for f, tx := range w.Plan(collectGarbage) {
			if tx.Empty() {
				continue
			}
			if !announced {
				w.Fatalf("the model did not announce that there is something to plan:\n%s", tx)
			}
			w.transactions = append(w.transactions, tx.String())
			if err := w.Kernels[f].Apply(tx); err != nil {
				w.Fatal(err)
			}
			for _, r := range tx.FlushConntrack {
				waits = true
				w.Model.Forgotten(npc.Family(f), []netip.Addr{r.Addr})
			}
		}
		if !w.Model.Resume() && !waits {
			return
		}
	}
}

// CollectGarbage removes the sets and chains that nothing uses any more.
func (w *Cluster) CollectGarbage() {
	w.Helper()
	w.Again(true)
	w.Again(true)
}

// Applied returns the text of the transactions that were applied since the last call.
func (w *Cluster) Applied() string {
	text := strings.Join(w.transactions, "")
	w.transactions = nil
	return text
}

// ProtocolNumbers are those of the protocols that Expect knows.
var ProtocolNumbers = map[string]uint8{
	"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP, "icmp": unix.IPPROTO_ICMP,
}

// Expect checks verdicts, one a line: "from > to tcp:80 = yes". Both families are checked that both ends have.
func (w *Cluster) Expect(lines string) {
	w.Helper()
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		var from, to, what, want string
		if n, err := fmt.Sscanf(line, "%s > %s %s = %s", &from, &to, &what, &want); n != 4 || err != nil {
			w.Fatalf("cannot read %q: %v", line, err)
		}
		name, port, _ := strings.Cut(what, ":")
		number, _ := strconv.Atoi(port)
		checked := false
		for _, src := range w.Find(from) {
			for _, dst := range w.Find(to) {
				if src.Is4() != dst.Is4() {
					continue
				}
				checked = true
				v := w.Evaluate(simulate.Packet{Src: src, Dst: dst, Protocol: ProtocolNumbers[name],
					DstPort: uint16(number), In: passes(from), Out: passes(to)})
				if v.Accepted != (want == "yes") {
					w.Errorf("%s: %s > %s: accepted = %t, by %q", strings.TrimSpace(line), src, dst, v.Accepted, v.By)
				}
				e := w.Explain(src, dst, ProtocolNumbers[name], uint16(number))
				if w.Explained && !NotByPolicies(e) && e.Allowed != (want == "yes") {
					w.Errorf("%s: %s > %s: explained as allowed = %t:\n%s",
						strings.TrimSpace(line), src, dst, e.Allowed, e)
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

// NotByPolicies reports whether policies do not decide a verdict: the packet is between a pod and its node, which is
// not forwarded, or a pod waits for its address, so that the fail-closed filter decides.
func NotByPolicies(v explain.Verdict) bool {
	return slices.ContainsFunc([]explain.Reason{v.Egress.Reason, v.Ingress.Reason}, func(r explain.Reason) bool {
		return r == "own node" || r == "waiting for its address"
	})
}

// Explain returns the verdict of package explain, from the policies alone.
func (w *Cluster) Explain(src, dst netip.Addr, protocol uint8, port uint16) explain.Verdict {
	return explain.Explain(w.Model.objects.View(), flow.Flow{
		From: flow.End{Addr: src}, To: flow.End{Addr: dst}, Node: Node,
		Service: flow.Service{Protocol: protocol, Port: port},
	})
}

// Find returns the addresses of a name, or an address that is given as such.
func (w *Cluster) Find(name string) []netip.Addr {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a}
	}
	if w.Addrs[name] == nil {
		w.Fatalf("no pod or address is called %q", name)
	}
	return w.Addrs[name]
}

// Evaluate returns what the kernels do with a packet.
func (w *Cluster) Evaluate(p simulate.Packet) simulate.PacketTrace {
	w.Helper()
	k := w.Kernels[npc.IPv4]
	if p.Src.Is6() {
		k = w.Kernels[npc.IPv6]
	}
	v, err := k.Simulate(p)
	if err != nil {
		w.Fatal(err)
	}
	return v
}

// Holds reports whether TCP to port 80 from one pod's address to another's is accepted as wanted.
func (w *Cluster) Holds(from, to string, want bool) bool {
	w.Helper()
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
	p := simulate.Packet{Src: src, Dst: dst, Protocol: 6, DstPort: 80, In: "cni0", Out: "cni0"}
	return w.Evaluate(p).Accepted == want
}

// ManyRules returns the spec of a policy with n rules. Each rule allows clients on a port of its own.
func ManyRules(target string, n int) string {
	var rules []string
	for i := range n {
		const rule = "{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: %d}]}"
		rules = append(rules, fmt.Sprintf(rule, 80+i))
	}
	return fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}, ingress: [%s]}", target, strings.Join(rules, ","))
}
