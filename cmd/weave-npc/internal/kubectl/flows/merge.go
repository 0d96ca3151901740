package flows

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// merge joins what several nodes have recorded of the same connections. One that a node allowed has not arrived if the
// other end's node denied it: that node has recorded no allowed one.
func merge(all []flowlog.Record) []flowlog.Record {
	type verdicts map[flowlog.Verdict][]flowlog.Record
	groups := map[flowlog.Between]verdicts{}
	var order []flowlog.Between
	for _, r := range all {
		k := r.Between()
		if groups[k] == nil {
			groups[k] = verdicts{}
			order = append(order, k)
		}
		groups[k][r.Verdict] = append(groups[k][r.Verdict], r)
	}
	var out []flowlog.Record
	for _, k := range order {
		g := groups[k]
		if denied := g[flowlog.Denied]; len(denied) > 0 {
			one := join(denied)
			overruled := !anyNodeOf(denied, g[flowlog.Allowed])
			if overruled {
				one.Staged = without(one.Staged, g[flowlog.Allowed])
			}
			out = append(out, one)
			if overruled {
				continue
			}
		}
		if allowed := g[flowlog.Allowed]; len(allowed) > 0 {
			out = append(out, join(allowed))
		}
	}
	return out
}

// anyNodeOf reports whether a node of some records has also one of others.
func anyNodeOf(records, others []flowlog.Record) bool {
	nodes := map[string]bool{}
	for _, r := range records {
		nodes[r.Node] = true
	}
	return slices.ContainsFunc(others, func(r flowlog.Record) bool { return nodes[r.Node] })
}

// join makes one record of several with the same ends, port and verdict. Each connection between pods was seen by two
// nodes at most, and any other by one.
func join(records []flowlog.Record) flowlog.Record {
	out := records[0]
	var sum, replied, most, mostReplied uint64
	names := out.To.DomainNames
	for _, r := range records {
		if len(names) == 0 {
			names = r.To.DomainNames
		}
		if r.Last.After(out.Last) {
			first := out.First
			out = r
			out.First = first
		}
		if r.First.Before(out.First) {
			out.First = r.First
		}
		sum, replied = sum+r.Count, replied+r.Replied
		most, mostReplied = max(most, r.Count), max(mostReplied, r.Replied)
	}
	if out.From.IsPod() && out.To.IsPod() {
		sum, replied = max(most, (sum+1)/2), max(mostReplied, (replied+1)/2)
	}
	if len(out.To.DomainNames) == 0 {
		out.To.DomainNames = names // which that node did not see
	}
	out.Count, out.Replied, out.Staged = sum, replied, joinStaged(records)
	if len(records) > 1 {
		out.Node = ""
	}
	return out
}

// joinStaged joins what groups would do with the connections of several records. Nodes count the same connections: a
// count is the least that it can be.
func joinStaged(records []flowlog.Record) (out []flowlog.Staged) {
	for _, r := range records {
		for _, s := range r.Staged {
			i := slices.IndexFunc(out, func(o flowlog.Staged) bool { return o.Group == s.Group })
			if i < 0 {
				out = append(out, s)
				continue
			}
			one := out[i]
			if s.Last.After(one.Last) {
				one = s
			}
			one.Count, one.First = max(out[i].Count, s.Count), out[i].First
			if s.First.Before(one.First) {
				one.First = s.First
			}
			out[i] = one
		}
	}
	return out
}

// without leaves out a group if the other end's node would deny what it allows today: with the group, the connections
// would be denied as they are today.
func without(staged []flowlog.Staged, allowed []flowlog.Record) (out []flowlog.Staged) {
	for _, s := range staged {
		if !slices.ContainsFunc(allowed, func(r flowlog.Record) bool {
			return slices.ContainsFunc(r.Staged, func(o flowlog.Staged) bool { return o.Group == s.Group })
		}) {
			out = append(out, s)
		}
	}
	return out
}
