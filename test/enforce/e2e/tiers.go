package e2e

import "strings"

// Subjects of cluster network policies.
const (
	AllPods  = `{namespaces: {}}`
	ShopPods = `{namespaces: {matchLabels: {team: a}}}`
	OpsPods  = `{namespaces: {matchLabels: {team: b}}}`
	WebAlone = `{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}`
	DBAlone  = `{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: db}}}}`
	MonAlone = `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: mon}}}}`
)

// Admin returns the spec of a cluster network policy. Rules are sections, as in "ingress: [{action: Deny,
// from: [...]}]".
func Admin(priority, subject string, rules ...string) string {
	return "{tier: Admin, priority: " + priority + ", subject: " + subject + ", " + strings.Join(rules, ", ") + "}"
}

// Baseline returns such a spec in the other tier.
func Baseline(priority, subject string, rules ...string) string {
	return "{tier: Baseline, priority: " + priority + ", subject: " + subject + ", " + strings.Join(rules, ", ") + "}"
}

// Ingress returns a section with one rule for peers, which may be followed by protocols.
func Ingress(action, peers string, protocols ...string) string {
	return "ingress: [{action: " + action + ", from: [" + peers + "]" + list("protocols", protocols) + "}]"
}

// Egress returns such a section for the other direction.
func Egress(action, peers string, protocols ...string) string {
	return "egress: [{action: " + action + ", to: [" + peers + "]" + list("protocols", protocols) + "}]"
}

func list(field string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return ", " + field + ": [" + strings.Join(items, ", ") + "]"
}

// Colour returns the subject or the peer of the pods that have a colour.
func Colour(name string) string {
	return `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: ` + name + `}}}}`
}
