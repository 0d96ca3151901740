package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/lab"
)

// story is the demo's course.
type story struct {
	*cluster
	*printer
	npc  string
	last matrix // the one that was shown last
}

// tell shows everything, in order. It fails if anything is not as it says.
func (s *story) tell(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.introduce, s.askFirst, s.start, s.isolate, s.showKernel, s.showLog, s.editPolicy, s.relabelPod, s.relabelNamespace,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *story) introduce(context.Context) error {
	return nil
}
func (s *story) askFirst(ctx context.Context) error {
	s.last = everybody()
	if err := s.expect(ctx, s.last); err != nil {
		return err
	}
	s.print(s.last.draw(nil, s.painter))
	return nil
}

func (s *story) start(ctx context.Context) error {
	for _, n := range s.world.Nodes() {
		if err := s.startNPC(ctx, s.npc, n, s.cancel); err != nil {
			return err
		}
		if err := s.awaitReady(ctx, n); err != nil {
			return err
		}
	}
	return s.expect(ctx, s.last)
}

// isolated is the matrix that the policies ask for.
func isolated() matrix {
	return table(`
		shop/web              .   .    ok   x    x    x    ok   ok   ok
		shop/api              ok  x    .    .    ok   x    ok   ok   ok
		shop/db               ok  x    x    x    .    .    ok   ok   ok
		monitoring/prometheus x   ok   x    ok   x    ok   .    x    x
		dev/shell             x   x    x    x    x    x    x    .    ok
		outside               ok  x    x    x    x    x    ok   ok   .`)
}

func table(text string) matrix {
	m := matrix{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		for j, mark := range strings.Fields(line)[1:] {
			v := map[string]verdict{".": itself, "ok": reaches, "x": blocked}[mark]
			if v != itself {
				m[pair{rows()[i], columns()[j]}] = v
			}
		}
	}
	return m
}

func (s *story) isolate(ctx context.Context) error {
	return s.change(ctx, isolated(), func() error { return s.manifests.write(policiesFile, policiesManifest) })
}

func (s *story) change(ctx context.Context, want matrix, f func() error) error {
	took, err := s.follow(ctx, s.last, want, f)
	if err != nil {
		return err
	}
	s.print(want.draw(s.last, s.painter))
	s.print(fmt.Sprintln(took))
	s.last = want
	return nil
}

func (s *story) showKernel(ctx context.Context) error {
	n := s.world.Node("node1")
	for _, x := range [][]string{{"iptables", "-S"}, {"ipset", "list"}} {
		o, err := output(ctx, n, x[0], x[1:]...)
		if err != nil {
			return err
		}
		s.print(o)
	}
	return nil
}
func (s *story) showLog(ctx context.Context) error {
	b,_ := os.ReadFile(s.logFile(s.world.Node("node1"))); s.print(string(b))
	s.print(s.logTail(s.world.Node("node2")))
	return nil
}
func (s *story) editPolicy(ctx context.Context) error {
	return s.change(ctx, s.last.but("shop/api", "shop/db", 5432, blocked), func() error {
		return s.manifests.edit(edit{policiesFile, "- podSelector: {matchLabels: {app: api}}", `- podSelector: {matchLabels: {db-client: "yes"}}`})
	})
}
func (s *story) relabelPod(ctx context.Context) error {
	return s.change(ctx, s.last.but("shop/api", "shop/db", 5432, reaches), func() error {
		return s.manifests.edit(edit{podsFile, "{app: api}", `{app: api, db-client: "yes"}`})
	})
}
func (s *story) relabelNamespace(ctx context.Context) error {
	return s.change(ctx, s.last.but("monitoring/prometheus", "dev/shell", 9100, reaches), func() error {
		return s.manifests.edit(edit{namespacesFile, "{name: dev}", `{name: dev, labels: {scrape: "yes"}}`})
	})
}
func (s *story) stay(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
var _ = os.Stdout
var _ = regexp.MustCompile
var _ time.Duration
var _ = errors.New
var _ lab.Host
