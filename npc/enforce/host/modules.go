package host

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// Lack is what the kernel lacks of what sets and rules need.
type Lack struct {
	// Modules are the names of modules that have it, in order, each once.
	Modules []string
	// Enforces is set if some family has what no policy can be enforced without.
	Enforces bool
}

// Lacking finds out what the kernel lacks, by sets and rules that it makes and removes, and that no packet meets.
func Lacking(ctx context.Context, b iptables.Backend, families []npc.Family) (Lack, error) {
	var l Lack
	for _, f := range families {
		modules, enforces, err := lacking(ctx, b, f)
		if err != nil {
			return Lack{}, errors.Wrapf(err, "%s: finding out what the kernel lacks", f)
		}
		l.Modules, l.Enforces = append(l.Modules, modules...), l.Enforces || enforces
	}
	slices.Sort(l.Modules)
	l.Modules = slices.Compact(l.Modules)
	return l, nil
}

// String returns what the kernel lacks and what to do; empty if it lacks nothing.
func (l Lack) String() string {
	if len(l.Modules) == 0 {
		return ""
	}
	text := "the kernel lacks " + strings.Join(l.Modules, ", ") + ": load what is missing on the node (modprobe -a " +
		strings.Join(l.Modules, " ") + "), or install the package of its modules (kernel-modules-extra on RHEL 10)"
	if !l.Enforces {
		text += "; no policy is enforced until then"
	}
	return text
}

func lacking(ctx context.Context, b iptables.Backend, f npc.Family) (modules []string, enforces bool, err error) {
	sets, err := ipset.Open()
	if errors.Is(err, ipset.ErrUnsupported) {
		return []string{"ip_set"}, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer sets.Close()
	set := ""
	for _, t := range []ipset.Type{ipset.HashIP, ipset.HashIPPort, ipset.HashNet, ipset.ListSet} {
		s := ipset.Set{Name: naming.SetPrefix + "try-" + uuid.NewString()[:8], Type: t, Family: naming.IPSet(f), Size: 1}
		err := sets.Apply([]ipset.Op{{Kind: ipset.Create, Set: s}})
		switch {
		case errors.Is(err, ipset.ErrUnsupported):
			modules = append(modules, "ip_set_"+strings.NewReplacer(":", "_", ",", "").Replace(string(t)))
			continue
		case err != nil:
			return nil, false, err
		}
		set = s.Name
		defer func() {
			if e := sets.Apply([]ipset.Op{{Kind: ipset.Destroy, Set: s}}); err == nil {
				err = e
			}
		}()
	}
	if set == "" {
		return modules, false, nil
	}
	refused, essential, err := refusedRules(ctx, b, f, set)
	return append(modules, refused...), err == nil && len(modules) == 0 && !essential, err
}

// refusedRules returns the modules without which the kernel refuses rules, and whether some of them are essential.
func refusedRules(ctx context.Context, b iptables.Backend, f npc.Family, set string) (
	modules []string, essential bool, err error,
) {
	table, err := iptables.New(naming.IPTables(f), b)
	if iptables.IsTableMissing(err) {
		return tableModules(b, f), true, nil
	}
	if err != nil {
		return nil, false, err
	}
	try := func(rules ...iptables.Rule) (refused []iptables.Refusal, err error) {
		chain := iptables.Chain{Name: naming.ScratchChain + "-NEEDS", Rules: rules}
		all := func(iptables.Rule) bool { return true }
		refused, err = table.ApplyWithout(ctx, iptables.Update{Replace: []iptables.Chain{chain}}, naming.ScratchChain, all)
		if err != nil {
			return nil, err
		}
		return refused, table.Apply(ctx, iptables.Update{Delete: []string{chain.Name}})
	}
	refused, err := try(iptables.Rule{Comment: "what all rules have", Target: "-j RETURN"})
	if iptables.IsTableMissing(err) {
		return tableModules(b, f), true, nil
	}
	if err != nil || len(refused) > 0 {
		return ruleModules(b), true, err
	}
	needs, first := rules.Needs(f, set)
	var all []iptables.Rule
	number := map[string]int{}
	for i, n := range needs {
		n.Rule.Comment = n.Module
		all = append(all, n.Rule)
		number[n.Rule.ID()] = i
	}
	refused, err = try(all...)
	for _, r := range refused {
		i := number[r.ID]
		modules, essential = append(modules, needs[i].Module), essential || i < first
	}
	return modules, essential, err
}

// ruleModules returns the modules that have what all rules have.
func ruleModules(b iptables.Backend) []string {
	if b == iptables.NFT {
		return []string{"nft_compat", "xt_comment"}
	}
	return []string{"xt_comment"}
}

// tableModules returns the modules that have the filter table of a family.
func tableModules(b iptables.Backend, f npc.Family) []string {
	switch {
	case b == iptables.NFT:
		return []string{"nf_tables"}
	case f == npc.IPv6:
		return []string{"ip6table_filter"}
	}
	return []string{"iptable_filter"}
}
