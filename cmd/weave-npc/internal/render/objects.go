package render

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/weave-npc/weave-npc/npc/explain"
)

// Pods writes pods as a table or as JSON.
func Pods(out io.Writer, format string, pods []explain.PodRow) error {
	if format == "json" {
		return writeJSON(out, pods)
	}
	var rows [][]string
	for _, p := range pods {
		rows = append(rows, []string{p.Pod, orDash(strings.Fields(p.Node)), orDash(addresses(p.Addresses)),
			orDash(p.Ingress), orDash(p.Egress), p.Note})
	}
	return table(out, "POD NODE ADDRESSES INGRESS-ISOLATED-BY EGRESS-ISOLATED-BY NOTE", rows)
}

func addresses(addrs []netip.Addr) (texts []string) {
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return texts
}

// Policies writes policies as a table or as JSON.
func Policies(out io.Writer, format string, policies []explain.PolicyRow) error {
	if format == "json" {
		return writeJSON(out, policies)
	}
	var rows [][]string
	for _, p := range policies {
		types := make([]string, 0, len(p.Types))
		for _, t := range p.Types {
			types = append(types, string(t))
		}
		allows := p.Invalid
		if allows != "" {
			allows = "nothing: it is invalid: " + allows
		}
		first := []string{p.Policy, orDash(types), selects(p), allows}
		rules := ruleRows(p)
		if len(rules) > 0 {
			first[3], rules = rules[0], rules[1:]
		} else if allows == "" {
			first[3] = "nothing"
		}
		rows = append(rows, first)
		for _, r := range rules {
			rows = append(rows, []string{"", "", "", r})
		}
	}
	return table(out, "POLICY TYPES ISOLATES ALLOWS", rows)
}

// selects describes the pods that a policy isolates.
func selects(p explain.PolicyRow) string {
	text := "all pods"
	if p.Selects != "" {
		text = p.Selects
	}
	const most = 3
	names := p.Pods
	if len(names) > most {
		names = append(names[:most:most], fmt.Sprintf("%d more", len(p.Pods)-most))
	}
	if len(names) == 0 {
		return text + " (nobody)"
	}
	return text + " (" + strings.Join(names, ", ") + ")"
}

func ruleRows(p explain.PolicyRow) (texts []string) {
	for i, r := range p.Ingress {
		texts = append(texts, fmt.Sprintf("ingress %d: %s", i+1, r))
	}
	for i, r := range p.Egress {
		texts = append(texts, fmt.Sprintf("egress %d: %s", i+1, r))
	}
	return texts
}
