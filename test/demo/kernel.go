package main

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/lab"
)

// kernelRules are the rules of a node's filter table for IPv4, in the syntax of `iptables -S`.
type kernelRules string

func readRules(ctx context.Context, n *lab.Node) (kernelRules, error) {
	text, err := output(ctx, n, "iptables", "-w", "-S")
	return kernelRules(text), err
}

// of returns the chain and the text of the rule that a policy needs.
func (r kernelRules) of(policy string) (chain, rule string, err error) {
	found := regexp.MustCompile(`(?m)^-A (WEAVE-NPC-\S+) .* ` + regexp.QuoteMeta(policy) + ` rule 1".*$`).
		FindStringSubmatch(string(r))
	if found == nil {
		return "", "", errors.Errorf("no rule of policy %s among:\n%s", policy, r)
	}
	return found[1], found[0], nil
}

// set returns the name of the set that a policy's rule matches in a direction: src, dst or dst,dst.
func (r kernelRules) set(policy, direction string) (string, error) {
	_, rule, err := r.of(policy)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`--match-set (\S+) ` + direction + ` `).FindStringSubmatch(rule)
	if found == nil {
		return "", errors.Errorf("no set that is matched by %s in: %s", direction, rule)
	}
	return found[1], nil
}

// listSet returns the output of `ipset list` for a set, without the lines about memory.
func listSet(ctx context.Context, n *lab.Node, name string) (string, error) {
	text, err := output(ctx, n, "ipset", "list", name)
	if err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(text) {
		switch word, _, _ := strings.Cut(line, ":"); word {
		case "Revision", "Size in memory", "References":
		default:
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ""), nil
}

// provoke connects until weave-npc on a node reports in its log that this was blocked, and returns that line. What
// was reported a moment ago is summed up some seconds later.
func (c *cluster) provoke(ctx context.Context, n *lab.Node, p pair) (string, error) {
	offset, err := c.logSize(n)
	if err != nil {
		return "", err
	}
	for deadline := time.Now().Add(2 * timeout); time.Now().Before(deadline); {
		v, err := c.ask(ctx, p, 4)
		if err != nil {
			return "", errors.Wrap(err, "connecting")
		}
		if v != blocked {
			return "", errors.Errorf("%s: %s", p, v)
		}
		lines, err := c.logSince(n, offset)
		if err != nil {
			return "", err
		}
		for _, line := range lines {
			if p.isIn(line, c.hosts[p.from].Addr4(), c.hosts[p.to.host].Addr4()) {
				return line, nil
			}
		}
	}
	return "", errors.Errorf("%s is blocked, and %s does not report it; the end of its log:\n%s", p, n, c.logTail(n))
}

// isIn reports whether a line of a log is about the blocked connection, whose ends have these addresses.
func (p pair) isIn(line string, from, to netip.Addr) bool {
	return strings.Contains(line, "msg=blocked") && strings.Contains(line, fmt.Sprintf(`from="%s (%s:`, p.from, from)) &&
		strings.Contains(line, fmt.Sprintf(`to="%s (%s:%d)"`, p.to.host, to, p.to.port))
}
