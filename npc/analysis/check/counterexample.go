package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Counterexample is a flow that breaks an expectation.
type Counterexample struct {
	Verdict explain.Verdict
	// Namespaces and Pods are not there: with them, there is the flow.
	Namespaces []npc.Namespace
	Pods       []*npc.Pod
	// replicas maps a pod to the existing pod that it is a replica of. blocks maps a pod to the ranges that its address
	// has to be in.
	replicas map[*npc.Pod]*npc.Pod
	blocks   map[*npc.Pod][]string
	others   map[string]string // those of the Prover
}

// broken records what breaks the expectation.
func (c *check) broken(f flow.Flow, from, to candidate) {
	x := &Counterexample{replicas: map[*npc.Pod]*npc.Pod{}, blocks: map[*npc.Pod][]string{}, others: c.others}
	v := c.view
	if from.class == nil && from.pod != nil || to.class == nil && to.pod != nil {
		var all []*npc.Pod
		c.Counterexamples++
		prefix := fmt.Sprintf("counterexample-%d-", c.Counterexamples)
		x.place(c.from, from, prefix+"source", &f.From, c.to, &all)
		x.place(c.to, to, prefix+"destination", &f.To, c.from, &all)
		v = c.view.Assume(nil, all)
	}
	if x.Verdict = explain.Explain(v, f); x.Verdict.Allowed != (c.Verb == expectation.Never) {
		c.unproved(fmt.Sprintf("the result of %s -> %s, %s is not certain", f.From, f.To, f.Service))
		return
	}
	c.Outcome, c.Counterexample, c.Why = Broken, x, c.why(f, x)
}

// place adds a candidate's pod to all and, if it is not there, to the counterexample under a name of its own.
func (x *Counterexample) place(s *side, k candidate, name string, end *flow.End, peers *side, all *[]*npc.Pod) {
	if k.pod == nil {
		return
	}
	if k.class != nil {
		*all = append(*all, s.view.Pods[end.Pod])
		return
	}
	q := *k.pod
	q.Name, q.Addrs = s.unusedName(q.Namespace, name), []netip.Addr{end.Addr}
	end.Pod = q.Key()
	*all, x.Pods = append(*all, &q), append(x.Pods, &q)
	if k.of != nil {
		x.replicas[&q] = k.of
	}
	for _, n := range s.invented {
		if n.Name == q.Namespace &&
			!slices.ContainsFunc(x.Namespaces, func(m npc.Namespace) bool { return m.Name == n.Name }) {
			x.Namespaces = append(x.Namespaces, n)
		}
	}
	x.describe(s, &q, peers)
}

// describe records which ranges a pod's address has to be in, and which it must not be in, if rules distinguish
// addresses of pods.
func (x *Counterexample) describe(s *side, q *npc.Pod, peers *side) {
	places := slices.DeleteFunc(s.podPlaces(peers.rules), func(at place) bool {
		return at.first.Is4() != q.Addrs[0].Is4()
	})
	if len(places) < 2 {
		return
	}
	const most = 5
	seen := map[string]bool{}
	for _, b := range s.ruleBlocks(peers.rules) {
		text := blockText(b.CIDR, b.Except)
		if in, _ := b.Contains(q.Addrs[0]); !in {
			text = "not in " + text
		} else {
			text = "in " + text
		}
		if !seen[text] && len(seen) < most {
			seen[text] = true
			x.blocks[q] = append(x.blocks[q], text)
		}
	}
}

func blockText(cidr netip.Prefix, except []netip.Prefix) string {
	text := cidr.String()
	for i, e := range except {
		text += []string{" without ", ", "}[min(i, 1)] + e.String()
	}
	return text
}

// why returns a sentence about a flow.
func (c *check) why(f flow.Flow, x *Counterexample) string {
	verb, port := "does not reach", f.Service.String()
	switch {
	case c.Verb == expectation.Never:
		verb = "reaches"
	case len(c.Ports) == 0:
		port = "any port"
	}
	to := x.name(f.To)
	if names := c.view.Learned[f.To.Addr]; f.To.Pod == "" && len(names) > 0 {
		to = fmt.Sprintf("%s (as if at %s)", names[0], f.To.Addr)
	}
	return fmt.Sprintf("%s %s %s on %s", x.name(f.From), verb, to, port)
}

// name names an end.
func (x *Counterexample) name(e flow.End) string {
	for _, q := range x.Pods {
		if e.Pod != q.Key() {
			continue
		}
		if of := x.replicas[q]; of != nil {
			return "another replica of " + of.Key()
		}
		text := "a pod that could be in " + q.Namespace
		if len(x.Namespaces) > 0 &&
			slices.ContainsFunc(x.Namespaces, func(n npc.Namespace) bool { return n.Name == q.Namespace }) {
			text = "a pod that could be in a new namespace"
		}
		if len(q.Labels) == 0 {
			return text + " without labels"
		}
		var l []string
		for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
			l = append(l, k+"="+q.Labels[k])
		}
		return text + " with " + strings.Join(l, ",")
	}
	if of := x.others[e.Pod]; of != "" {
		return "another replica of " + of
	}
	return e.String()
}

// Manifests returns the namespaces and pods that are not there as YAML documents; it is empty if all are there.
func (x *Counterexample) Manifests() (string, error) {
	var b strings.Builder
	for _, n := range x.Namespaces {
		if err := write(&b, nil, map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": n.Name, "labels": n.Labels}}); err != nil {
			return "", err
		}
	}
	for _, q := range x.Pods {
		if err := write(&b, x.comments(q), podManifest(q)); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// comments returns what a manifest does not say of a pod.
func (x *Counterexample) comments(q *npc.Pod) (out []string) {
	if of := x.replicas[q]; of != nil {
		out = append(out, "as another replica of "+of.Key())
	}
	if blocks := x.blocks[q]; len(blocks) > 0 {
		out = append(out, "with an address "+strings.Join(blocks, ", "))
	}
	return out
}

// podManifest returns a pod as an API server takes it. What it runs does not matter.
func podManifest(q *npc.Pod) map[string]any {
	metadata := map[string]any{"name": q.Name, "namespace": q.Namespace}
	if len(q.Labels) > 0 {
		metadata["labels"] = q.Labels
	}
	container := map[string]any{"name": "pause", "image": "registry.k8s.io/pause:3.10"}
	var ports []any
	for _, port := range q.Ports {
		ports = append(ports, map[string]any{"name": port.Name, "containerPort": port.Port,
			"protocol": string(npc.APIProtocol(port.Protocol))})
	}
	if len(ports) > 0 {
		container["ports"] = ports
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
		"spec": map[string]any{"containers": []any{container}}}
}

// write writes an object as a YAML document.
func write(b *strings.Builder, comments []string, object any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return errors.Wrap(err, "writing a counterexample")
	}
	b.WriteString("---\n")
	for _, c := range comments {
		b.WriteString("# " + c + "\n")
	}
	b.Write(text)
	return nil
}
