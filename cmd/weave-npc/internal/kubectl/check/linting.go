package check

import (
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output/findings"
	"github.com/weave-npc/weave-npc/npc/analysis/lint"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// lintPage is the page of the documentation that has a heading for each rule.
const lintPage = "docs/lint.md"

// lintRules returns the rules of the linter.
func lintRules() []findings.RuleInfo {
	var out []findings.RuleInfo
	for _, r := range lint.Rules() {
		out = append(out, findings.RuleInfo{ID: r.ID, Level: level(r.Level), Short: r.Short, Help: r.Help,
			Doc: lintPage + "#" + r.ID})
	}
	return out
}

// lintFindings returns the findings of the linter. The view must be of the same objects.
func lintFindings(o snapshot.Objects, view *cluster.View, n snapshot.Network) []findings.Finding {
	var out []findings.Finding
	for _, f := range lint.Run(o, view, n) {
		out = append(out, findings.Finding{Rule: f.Rule, Level: level(f.Level), Message: f.Message, Detail: f.Detail,
			Object: findings.Object{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}, File: f.File, Line: f.Line})
	}
	return out
}

func level(l lint.Level) findings.Level {
	switch l {
	case lint.Error:
		return findings.Error
	case lint.Warning:
		return findings.Warning
	case lint.Note:
	}
	return findings.Note
}
