package syncer

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

const (
	// maxRestore is how many rules one iptables-restore writes, unless one namespace has more.
	maxRestore = 2000
	// tryTimeout bounds the look at whether anything can be written at all.
	tryTimeout = 2 * time.Second
)

// write writes the rules of a transaction part by part. What fails for one namespace alone does not keep others from
// being written, but leaves the dispatch to all of them as it is. It reports whether all rules were written, except
// those that were rejected.
func (r *result) write(ctx context.Context, k *kernel, tx dataplane.Transaction) (all bool) {
	parts := tx.Restores(maxRestore)
	for i := 0; i < len(parts); i++ {
		part := parts[i]
		if i == len(parts)-1 && len(r.namespaces) > 0 && len(part.Groups) == 0 {
			return false
		}
		rejected, err := k.writePart(ctx, part)
		r.rejected = append(r.rejected, rejected...)
		if err == nil {
			r.Written = append(r.Written, part.Update)
			continue
		}
		alone := iptables.Update{Replace: part.Replace, Insert: part.Insert, Edits: part.Edits}.Split(0,
			func(chain string) string { return tx.Namespaces[chain] })
		switch {
		case len(rejected) > 0 || len(part.Groups) == 0 || ctx.Err() != nil || k.writable(ctx) != nil:
			r.ruleErrs = append(r.ruleErrs, err)
			return false
		case len(parts) == 1 && len(alone)+len(part.Jumps)+len(part.Delete) > 1:
			parts, i = tx.Restores(0), -1
		case len(part.Groups) == 1:
			r.namespaces[part.Groups[0]] = err
		default:
			parts = slices.Concat(parts[:i], alone, parts[i+1:])
			i--
		}
	}
	return len(r.namespaces) == 0
}

// writePart writes a part of a transaction's rules.
func (k *kernel) writePart(ctx context.Context, part iptables.Part) ([]iptables.Refusal, error) {
	what := "writing the way to the rules of namespaces"
	if len(part.Groups) > 0 {
		what = "writing the rules of namespaces " + listOf(part.Groups, namedInReport)
	}
	defer k.doing.Begin(k.family.String(), what)()
	return k.restore(ctx, part.Update)
}

// writable returns an error if nothing at all can be written now.
func (k *kernel) writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return k.filter.Try(ctx)
}

// restore applies an update without the rules that the kernel rejects, which it returns.
func (k *kernel) restore(ctx context.Context, u iptables.Update) ([]iptables.Refusal, error) {
	if u.Empty() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout())
	defer cancel()
	before, err := k.filter.Fingerprint()
	if err != nil {
		return nil, err
	}
	k.written++
	rejected, err := k.filter.ApplyWithout(ctx, u, naming.ScratchChain, optional)
	if err != nil {
		return rejected, err
	}
	k.unsynced = true
	after, err := k.filter.Fingerprint()
	if err != nil {
		return rejected, err
	}
	// Had another process changed anything in the meantime, the next look would not notice it by this print.
	if before == k.print && k.changedOnce(before, after) {
		k.print = after
	} else {
		k.print = iptables.Fingerprint{}
	}
	return rejected, nil
}

// changedOnce reports whether the table was changed by a single transaction. With nft, each makes one generation.
func (k *kernel) changedOnce(before, after iptables.Fingerprint) bool {
	return k.filter.Backend() != iptables.NFT || after.Generation == before.Generation+1
}

// optional reports whether a rule can be left out, or another one written instead, without opening anything: rules of
// NetworkPolicies only allow, rules that report decide nothing, those that end connections are for connections that
// were allowed, and those for answers of resolvers hold what is allowed.
func optional(r iptables.Rule) bool {
	return r.Instead != nil || r.Target == "-j ACCEPT" || r.Target == "-j RETURN" ||
		strings.HasPrefix(r.Target, "-j NFLOG ") ||
		strings.HasPrefix(r.Target, "-j MARK ") || strings.HasPrefix(r.Target, "-j REJECT ") ||
		strings.HasPrefix(r.Match, "-m connmark ") || strings.HasPrefix(r.Match, "-m string ") ||
		strings.HasPrefix(r.Match, "-m hashlimit --hashlimit-above ") || strings.HasPrefix(r.Target, "-j NFQUEUE ")
}
