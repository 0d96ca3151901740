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
		lines := allows(p)
		rows = append(rows, []string{p.Policy, orDash(types), selects(p), lines[0]})
		for _, line := range lines[1:] {
			rows = append(rows, []string{"", "", "", line})
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

// allows describes what a policy allows, in one line at least.
func allows(p explain.PolicyRow) (lines []string) {
	for i, r := range p.Ingress {
		lines = append(lines, fmt.Sprintf("ingress %d: %s", i+1, r))
	}
	for i, r := range p.Egress {
		lines = append(lines, fmt.Sprintf("egress %d: %s", i+1, r))
	}
	switch {
	case len(lines) > 0:
		return lines
	case p.Invalid != "":
		return []string{"nothing: it is invalid: " + p.Invalid}
	}
	return []string{"nothing"}
}
