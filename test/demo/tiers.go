package main

import (
	"context"
	_ "embed" // for the policies
	"os/exec"
	"regexp"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
)

//go:embed tiers.yaml
var tiersManifest string

// The rules of the policies that deny something, by the names that operators see.
const (
	adminDenies    = "Admin policy databases/rule 2 'all-others'"
	baselineDenies = "Baseline policy default-deny/rule 2 'all-others'"
)

// tiered returns the matrix after the policies of both tiers are written. Pods outside the shop lose the databases,
// though a NetworkPolicy allows them, and the pods that no NetworkPolicy isolates lose the clients that no rule
// accepts.
func tiered(before matrix) matrix {
	m := before.but("monitoring/prometheus", "shop/db", 9187, blocked)
	for _, from := range []string{"shop/web", "shop/api", "shop/db"} {
		m = m.but(from, "monitoring/prometheus", 9090, blocked).but(from, "dev/shell", 9100, blocked)
	}
	return m
}

func (s *story) addTiers(ctx context.Context) error {
	s.headline("An administrator writes policies for the whole cluster to %s", tiersFile)
	s.say("ClusterNetworkPolicies of the Admin tier are evaluated before NetworkPolicies, and those of the Baseline " +
		"tier after them, for pods that no NetworkPolicy isolates. The first rule that matches decides. " +
		"Pass leaves it to the next tier.")
	s.quote(tiersManifest)
	if err := s.pause(ctx); err != nil {
		return err
	}
	before := s.last
	err := s.change(ctx, tiered(before), func() error { return s.manifests.write(tiersFile, tiersManifest) })
	if err != nil {
		return err
	}
	s.show(before)
	s.say("Prometheus scrapes the database no more, though policy shop/metrics allows it, and the shop's own " +
		"pods reach only what a rule allows. Hosts outside are no pods: neither policy names them.")
	for _, ask := range []func(context.Context) error{s.explainTiers, s.pause, s.listTiers, s.pause, s.showDenied} {
		if err := ask(ctx); err != nil {
			return err
		}
	}
	return nil
}

// explainTiers asks why prometheus does not reach the database, although a NetworkPolicy allows it.
func (s *story) explainTiers(ctx context.Context) error {
	s.say("weave-npc explains which rule decides, and the verdict without that rule:")
	const denied = 1 // the exit status
	says := []string{"denied by " + adminDenies, "without it: allowed: a rule allows it"}
	return s.command(ctx, denied, says, []string{" "},
		"explain", "--from", "monitoring/prometheus", "--to", s.hosts["shop/db"].Addr4().String(), "--port", "tcp/9187")
}

// listTiers lists the policies in the order of their evaluation.
func (s *story) listTiers(ctx context.Context) error {
	s.say("It lists the policies in the order of their evaluation. (Each rule has a line of its own here.)")
	says := []string{
		"Admin tier, asked first", "Deny 'all-others'", "Baseline tier, asked about the pods that no NetworkPolicy",
	}
	return s.command(ctx, 0, says, []string{" from "}, "show", "policies", "-n", "shop")
}

// command runs weave-npc and quotes its output. The command has to end with a status and to print some texts.
func (s *story) command(ctx context.Context, status int, says, breaks []string, args ...string) error {
	said, err := exec.CommandContext(ctx, s.npc, append(args, "--manifests", string(s.manifests))...).Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == status, err == nil && status == 0:
	case err == nil:
		return errors.Errorf("weave-npc %s ends with status 0, not %d, and says:\n%s",
			strings.Join(args, " "), status, said)
	default:
		return errors.Wrapf(err, "running weave-npc %s", strings.Join(args, " "))
	}
	for _, text := range says {
		if !strings.Contains(string(said), text) {
			return errors.Errorf("weave-npc %s does not say %q:\n%s", strings.Join(args, " "), text, said)
		}
	}
	// Without these breaks a table is too wide.
	text := regexp.MustCompile(`\s+((in|e)gress \d+: )`).ReplaceAllString(string(said), "\n    $1")
	s.quote("# weave-npc "+strings.Join(args, " ")+" --manifests "+string(s.manifests)+"\n"+text, breaks...)
	return nil
}

// showDenied shows the log of what the tiers block.
func (s *story) showDenied(ctx context.Context) error {
	n := s.harness.Node("node1")
	s.say("And the log of %s names the rule that denies what is blocked:", n)
	denials := []struct {
		pair
		by string
	}{
		{pair{"monitoring/prometheus", target{"shop/db", 9187}}, adminDenies},
		{pair{"shop/web", target{"dev/shell", 9100}}, baselineDenies},
	}
	lines := make([]string, len(denials))
	group, ctx := errgroup.WithContext(ctx) // their reports come at the same time
	for i, b := range denials {
		group.Go(func() (err error) {
			lines[i], err = s.provoke(ctx, n, b.pair)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, line := range lines {
		if !strings.Contains(line, `denied_by="`+denials[i].by+`"`) {
			return errors.Errorf("the line does not name %s: %s", denials[i].by, line)
		}
		s.quote(line, " from=", " to=", " denied_by=")
	}
	return nil
}
