package iptables

// RuleID is the id that a printed rule's comment begins with; empty if there is none or the rule cannot be read.
func RuleID(printed string) string {
	r, err := parseRule(printed)
	if err != nil {
		return ""
	}
	return r.idOr("")
}
