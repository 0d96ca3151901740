package flows

import "fmt"

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
func (r Rule) String() string {
	policy := "policy " + r.Policy
	if r.Tier != "" {
		policy = r.Tier + " " + policy
	}
	if r.Number == 0 {
		return fmt.Sprintf("no %s rule of %s", r.Direction, policy)
	}
	return fmt.Sprintf("%s rule %d of %s", r.Direction, r.Number, policy)
}
