package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// stay keeps the cluster standing until the context ends. Whenever a manifest changes or a weave-npc ends, it asks for
// the matrix again.
func (s *story) stay(ctx context.Context) error {
	s.staying.Store(true)
	s.headline("The cluster stays until you press ^C")
	s.explain()
	last, err := s.manifests.version()
	if err != nil {
		return err
	}
	heard, err := s.logSize(s.harness.Nodes()[0])
	if err != nil {
		return err
	}
	for sleep(ctx, 200*time.Millisecond) {
		if err := s.restartEnded(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		version, err := s.manifests.version()
		if err != nil {
			return err
		}
		if version == last {
			continue
		}
		last = version
		sleep(ctx, 500*time.Millisecond) // an editor's save is several changes, and weave-npc waits for the last
		if heard, err = s.reportLog(heard); err != nil {
			return err
		}
		s.askAgain(ctx)
	}
	var wanted interruption
	if errors.As(context.Cause(ctx), &wanted) {
		s.say("The cluster is removed.")
		return nil
	}
	return context.Cause(ctx)
}

// sleep waits, and reports whether the context lasted as long.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// explain prints where everything is.
func (s *story) explain() {
	s.say("Change the manifests with an editor, and the matrix is asked and printed again:")
	s.quote(string(s.manifests))
	s.say("Enter a node, for iptables -S, ip6tables -S and ipset list:")
	var nodes, pods, logs []string
	for _, n := range s.harness.Nodes() {
		nodes = append(nodes, "ip netns exec "+n.Namespace()+" bash")
		logs = append(logs, s.logFile(n))
	}
	s.quote(strings.Join(nodes, "\n"))
	s.say("Enter a pod, or the host outside:")
	for _, name := range rows() {
		pods = append(pods, "ip netns exec "+s.hosts[name].Namespace()+" bash")
	}
	s.quote(strings.Join(pods, "\n"))
	s.say("Connect by hand; every server says its name:")
	s.quote(fmt.Sprintf("ip netns exec %s timeout 1 bash -c 'head -1 </dev/tcp/%s/5432'",
		s.hosts["shop/api"].Namespace(), s.hosts["shop/db"].Addr4()))
	s.say("Kill weave-npc; what it wrote stays in force:")
	var kills []string
	for _, n := range s.harness.Nodes() {
		kills = append(kills, fmt.Sprintf("kill -9 %d    # on %s", s.pids[n.Name()], n))
	}
	s.quote(strings.Join(kills, "\n"))
	s.say("Watch what weave-npc says:")
	s.quote("tail -f " + strings.Join(logs, " "))
}

// restartEnded asks for the matrix while a weave-npc does not run, if one was ended, and starts it again once the reader
// wants it.
func (s *story) restartEnded(ctx context.Context) error {
	select {
	case n := <-s.ended:
		s.say("weave-npc on %s has ended.", n)
		s.askAgain(ctx)
		if s.enters == nil {
			return nil
		}
		s.say("It starts again when you press Enter.")
		if err := s.pause(ctx); err != nil {
			return err
		}
		if err := s.startNPCs(ctx, n); err != nil {
			return err
		}
		s.say("weave-npc on %s runs again, as process %d.", n, s.pids[n.Name()])
		s.askAgain(ctx)
	default:
	}
	return nil
}

// reportLog prints the warnings and errors that weave-npc logged on the first node after the first so many bytes, above
// all of manifests that it cannot read. It returns the length of the log.
func (s *story) reportLog(heard int) (int, error) {
	n := s.harness.Nodes()[0]
	size, err := s.logSize(n)
	if err != nil {
		return 0, err
	}
	lines, err := s.logSince(n, heard)
	if err != nil {
		return 0, err
	}
	for _, line := range lines {
		if line != "" && !strings.Contains(line, "level=INFO") {
			s.quote(line, " ")
		}
	}
	return size, nil
}

// askAgain prints the current matrix. An error is printed and does not end the demo.
func (s *story) askAgain(ctx context.Context) {
	before := s.last
	seen, err := s.askAll(ctx, 4)
	var seen6 matrix
	if err == nil {
		seen6, err = s.askAll(ctx, 6)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.say("%v", err)
		}
		return
	}
	s.last = seen
	if len(seen.differences(before)) > 0 {
		s.show(before)
	} else {
		s.say("The matrix is as it was.")
	}
	if len(seen.differences(seen6)) > 0 {
		s.say("By IPv6, where + and - are what is not as by IPv4:")
		s.print(seen6.draw(seen, s.painter))
	}
}
