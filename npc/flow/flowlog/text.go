package flowlog

import (
	"fmt"
	"time"
)

// String returns the end as texts name it: shop/Deployment/web, or the address of what is no pod.
func (e End) String() string {
	switch {
	case e.IsPod():
		return e.Namespace + "/" + e.Workload
	case e.NodeAddr:
		return fmt.Sprintf("node %s", e.Addr)
	}
	return e.Addr.String()
}

// String returns the rule as texts name it.
func (r RuleRef) String() string {
	policy := "policy " + r.Policy
	if r.Tier != "" {
		policy = r.Tier + " " + policy
	}
	if r.Number == 0 {
		return fmt.Sprintf("no %s rule of %s", r.Direction, policy)
	}
	return fmt.Sprintf("%s rule %d of %s", r.Direction, r.Number, policy)
}

// Span returns since when hits are counted, for a sentence that begins so.
func (h *Hits) Span() string {
	text := "since " + h.Since.Local().Format(time.DateTime)
	if h.Complete.After(h.Since) {
		text += ", of all rules since " + h.Complete.Local().Format(time.DateTime)
	}
	return text
}
