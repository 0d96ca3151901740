package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/lab"
)

// story is the demo's course.
type story struct {
	*cluster
	*printer
	last    matrix         // the one that was shown last
	pids    map[string]int // node -> its weave-npc
	staying atomic.Bool    // the end of a weave-npc does not end the demo
	ended   chan *lab.Node // those whose weave-npc ended since then
}

// play shows everything, in order. It fails if anything is not as it claims.
func (s *story) play(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.introduce, s.askWithoutPolicies, s.startOnBothNodes, s.writePolicies, s.showKernel, s.showBlocked,
		s.editPolicy, s.relabelPod, s.relabelNamespace, s.addTiers,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) introduce(context.Context) error {
	s.spaced = true
	s.print(s.paint("weave-npc: reachability between pods", bold) + "\n")
	s.say("weave-npc runs on every node of a Kubernetes cluster and has the kernel drop the packets that "+
		"the cluster's network policies forbid. Here is a small cluster made of network namespaces: %d nodes, "+
		"%d pods and a host outside. The servers in them and the packets between them are real. "+
		"The machine's own network is not touched.",
		len(s.harness.Nodes()), len(pods()))
	var b strings.Builder
	line := func(host, pod string, h *lab.Host, serves string) {
		row := fmt.Sprintf("  %-8s %-22s %-13s %-16s %s", host, pod, h.Addr4(), h.Addr6(), serves)
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	for _, n := range s.harness.Nodes() {
		line(n.Name(), "", n.Host, "")
		for _, p := range pods() {
			if p.node == n.Name() {
				line("", p.String(), s.hosts[p.String()], "serves "+p.serves())
			}
		}
	}
	line(outside, "", s.hosts[outside], fmt.Sprintf("serves %d (https)", outsidePort))
	s.print(b.String())
	s.say("You will see: which pods reach which, without policies (1) and with weave-npc (2) and policies (3); what the " +
		"kernel holds for it (4) and what the log says of a blocked connection (5); how soon an edited policy and new " +
		"labels count (6, 7, 8); and policies for the whole cluster (9). It takes a minute, and is checked as it goes. " +
		"^C ends it and removes everything.")
	return nil
}

func (s *story) askWithoutPolicies(ctx context.Context) error {
	s.headline("No policies: every pod reaches every pod")
	s.last = everybody()
	if err := s.expect(ctx, s.last); err != nil {
		return err
	}
	s.show(nil)
	s.say("ok: a TCP connection is made and the right server answers. x: no answer. .: itself, not asked. " +
		"This matrix and those below are IPv4's. The same is asked over IPv6 each time, with the same result.")
	return nil
}

// show prints the last matrix and marks what is different from the one before, if there is one.
func (s *story) show(before matrix) { s.print(s.last.draw(before, s.painter)) }

func (s *story) startOnBothNodes(ctx context.Context) error {
	s.headline("weave-npc starts on both nodes")
	s.say("It follows an API server or, as here, a directory of manifests. Of a pod, it needs the labels, " +
		"the node, the addresses and the names of the ports:")
	s.quote(podManifest(pods()[1], s.hosts[pods()[1].String()].Addrs()))
	for _, n := range s.harness.Nodes() {
		s.quote(n.Name()+"# weave-npc "+strings.Join(s.arguments(n), " "), " --")
	}
	start := time.Now()
	if err := s.startNPCs(ctx, s.harness.Nodes()...); err != nil {
		return err
	}
	took := time.Since(start)
	if err := s.expect(ctx, s.last); err != nil {
		return err
	}
	s.say("Both are ready %d ms after their start. There are no policies yet, and the matrix is as before (checked).",
		took.Milliseconds())
	return nil
}

// startNPCs starts weave-npc on some nodes and waits until all are ready. The end of one ends the demo, or while the
// cluster stays, is shown.
func (s *story) startNPCs(ctx context.Context, nodes ...*lab.Node) error {
	died := func(n *lab.Node, err error) {
		if !s.staying.Load() {
			s.cancel(err)
			return
		}
		select {
		case s.ended <- n:
		case <-ctx.Done():
		}
	}
	for _, n := range nodes {
		pid, err := s.startNPC(ctx, n, died)
		if err != nil {
			return err
		}
		if s.pids == nil {
			s.pids = map[string]int{}
		}
		s.pids[n.Name()] = pid
	}
	for _, n := range nodes {
		if err := s.awaitReady(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// isolated returns the matrix that the policies ask for.
func isolated() matrix {
	return read(`
		shop/web               .  .   ok x   x  x   ok  ok  ok
		shop/api               ok x   .  .   ok x   ok  ok  ok
		shop/db                ok x   x  x   .  .   ok  ok  ok
		monitoring/prometheus  x  ok  x  ok  x  ok  .   x   x
		dev/shell              x  x   x  x   x  x   x   .   ok
		outside                ok x   x  x   x  x   ok  ok  .`)
}

func (s *story) writePolicies(ctx context.Context) error {
	s.headline("Policies are written to %s", policiesFile)
	s.say("There are seven. The one for the database:")
	s.quote(document(policiesManifest, "name: db}"))
	err := s.change(ctx, isolated(), func() error { return s.manifests.write(policiesFile, policiesManifest) })
	if err != nil {
		return err
	}
	s.show(nil)
	s.say("Read it by columns: only hosts outside visit shop/web:80; only web calls api:8080; only api calls " +
		"db:5432; only prometheus scrapes the shop, each pod at its own metrics port. By rows: prometheus does " +
		"nothing else, and dev/shell reaches hosts outside the cluster and none of its pods. The policies:")
	return s.command(ctx, 0, []string{"shop/db", "dev/internet-only"}, []string{" from ", " to "}, "show", "policies")
}

// change changes the manifests, waits until the matrix is the wanted one, and prints how long that took.
func (s *story) change(ctx context.Context, want matrix, change func() error) error {
	took, err := s.follow(ctx, s.last, want, change)
	if err != nil {
		return err
	}
	what := "the new verdict"
	if n := len(s.last.differences(want)); n > 1 {
		what = fmt.Sprintf("all %d new verdicts", n)
	}
	s.say("%d ms after the file was written, packets met %s, by IPv4 and by IPv6:", took.Milliseconds(), what)
	s.last = want
	return nil
}

func (s *story) showKernel(ctx context.Context) error {
	n := s.harness.Node("node1")
	s.headline("What the kernel of %s holds now", n)
	rules, err := readRules(ctx, n)
	if err != nil {
		return err
	}
	chain, _, err := rules.of("shop/db")
	if err != nil {
		return err
	}
	s.say("A packet to a pod of this node that a policy isolates comes to the chain WEAVE-NPC-INGRESS, and " +
		"from there to the chain of the pod's namespace. Each rule in that chain names its policy and allows " +
		"something. A packet that no rule allows is reported and dropped. (Long lines are broken here.)")
	for _, name := range []string{"WEAVE-NPC-INGRESS", chain} {
		text, err := output(ctx, n, "iptables", "-w", "-S", name)
		if err != nil {
			return err
		}
		s.quote(n.Name()+"# iptables -S "+name+"\n"+text, " -m ", " -g ", " -j ")
	}
	if err := s.pause(ctx); err != nil {
		return err
	}
	s.say("The rules match sets, whose members have names. Three of them: the peers that policy shop/db allows, " +
		"the ports that are called metrics for policy shop/metrics, and the ipBlock of policy dev/internet-only, " +
		"where nomatch marks its exceptions. (The lines on memory are left out here.)")
	for _, x := range []struct{ policy, direction, member string }{
		{"shop/db", "src", s.hosts["shop/api"].Addr4().String() + ` comment "shop/api"`},
		{"shop/metrics", "dst,dst", s.hosts["shop/db"].Addr4().String() + `,tcp:9187 comment "shop/db"`},
		{"dev/internet-only", "dst", "10.32.0.0/16 nomatch"},
	} {
		name, err := rules.set(x.policy, x.direction)
		if err != nil {
			return err
		}
		text, err := listSet(ctx, n, name)
		if err != nil {
			return err
		}
		if !strings.Contains(text, x.member) {
			return errors.Errorf("the set of policy %s has no %q:\n%s", x.policy, x.member, text)
		}
		s.quote(n.Name() + "# ipset list " + name + "\n" + text)
	}
	return nil
}

func (s *story) showBlocked(ctx context.Context) error {
	n := s.harness.Node("node1")
	s.headline("Blocked connections are reported")
	s.say("shop/web tries shop/db:5432, and dev/shell tries shop/api:8080. The log of weave-npc on %s names the pods "+
		"and the policies that isolate them. (The matrix tried both before: repeats counts that.)", n)
	for _, p := range []pair{{"shop/web", target{"shop/db", 5432}}, {"dev/shell", target{"shop/api", 8080}}} {
		line, err := s.provoke(ctx, n, p)
		if err != nil {
			return err
		}
		s.quote(line, " from=", " to=", " isolated_by=")
	}
	return nil
}

func (s *story) editPolicy(ctx context.Context) error {
	s.headline("A policy is edited")
	s.say("Policy shop/db shall no longer name the api, but a label for all that may use the database. " +
		"No pod has that label yet, so the api loses its database (-x).")
	return s.edit(ctx, edit{policiesFile, `- podSelector: {matchLabels: {app: api}}`,
		`- podSelector: {matchLabels: {db-client: "yes"}}`}, s.last.but("shop/api", "shop/db", 5432, blocked))
}

func (s *story) relabelPod(ctx context.Context) error {
	s.headline("A pod gets a label")
	s.say("Pod shop/api gets that label, and its database back (+ok).")
	n := s.harness.Node("node1")
	before, err := readRules(ctx, n)
	if err != nil {
		return err
	}
	label := edit{podsFile, `name: api, labels: {app: api}`, `name: api, labels: {app: api, db-client: "yes"}`}
	if err := s.edit(ctx, label, s.last.but("shop/api", "shop/db", 5432, reaches)); err != nil {
		return err
	}
	after, err := readRules(ctx, n)
	if err != nil {
		return err
	}
	if before != after {
		return errors.Errorf("a label of a pod has changed the rules of %s, from\n%s\nto\n%s", n, before, after)
	}
	s.say("No rule has changed for that (checked): one set has one member more.")
	return nil
}

func (s *story) relabelNamespace(ctx context.Context) error {
	s.headline("A namespace gets a label")
	s.say("Namespace dev asks to be scraped, so that policy monitoring/scrape lets prometheus reach dev/shell.")
	return s.edit(ctx, edit{namespacesFile, `{name: dev}`, `{name: dev, labels: {scrape: "yes"}}`},
		s.last.but("monitoring/prometheus", "dev/shell", 9100, reaches))
}

// edit shows and makes a change of a manifest, and shows its effect.
func (s *story) edit(ctx context.Context, e edit, want matrix) error {
	old, edited, err := s.manifests.lines(e)
	if err != nil {
		return err
	}
	s.print("    " + e.file + "\n    " + s.paint("-"+old, red) + "\n    " + s.paint("+"+edited, green) + "\n")
	before := s.last
	if err := s.change(ctx, want, func() error { return s.manifests.apply(e) }); err != nil {
		return err
	}
	s.show(before)
	return nil
}
