package syncer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/dataplane"
)

// committer tells the controller what became of a transaction, and decides what of the kernel has to be read again.
type committer struct {
	planner controller.Planner
	metrics *Metrics
	log     *slog.Logger
}

// commit tells the controller what the kernel took of a transaction, and reports whether something is now left out.
func (c *committer) commit(k *kernel, tx dataplane.Transaction, r *result) (leftOut bool) {
	rejected, lacking := c.sortRejected(r.rules.rejected)
	sets, rules := c.planner.Commit(tx, dataplane.Result{Asked: r.asked, Written: r.rules.parts, AllWritten: r.rules.all,
		RejectedSets: r.rejectedSets, RejectedRules: rejected, InUse: r.inUse})
	setErrs, ruleErrs := slices.Clone(r.sets), slices.Concat(r.rules.errs, lacking)
	for _, name := range sets {
		setErrs = append(setErrs, errors.New(r.rejectedSets[name]))
	}
	for _, id := range rules {
		ruleErrs = append(ruleErrs, errors.New(rejected[id]))
	}
	leftOut = len(sets) < len(r.rejectedSets) || len(rules) < len(rejected)
	leftOut = c.postpone(k, r.rules.namespaces) || leftOut
	k.setsKnown = k.setsKnown && len(setErrs)+len(lacking) == 0
	k.chainsKnown = k.chainsKnown && len(ruleErrs) == 0
	if leftOut && len(r.rules.namespaces) == 0 && k.rejections.wait == 0 {
		k.rejections.failed(time.Now())
	}
	k.errs = slices.Concat(k.errs, setErrs, ruleErrs)
	return leftOut
}

// sortRejected returns why the kernel rejected rules, by their ids, and errors about those that lacked a set: somebody destroyed it after it
// was made, which is nothing against the rule.
func (c *committer) sortRejected(rules []iptables.Refusal) (rejected map[string]string, lacking []error) {
	rejected = map[string]string{}
	for _, r := range rules {
		if lacksSet(r.Err) {
			lacking = append(lacking, r.Err)
		} else {
			rejected[r.ID] = r.Err.Error()
		}
	}
	return rejected, lacking
}

// postpone leaves the rules of namespaces that could not be written for later, and reports whether more can be done without them.
func (c *committer) postpone(k *kernel, failed map[string]error) (more bool) {
	now := time.Now()
	for ns, err := range failed {
		if k.postponed.waits(ns) { // not even a chain without rules could be written
			k.errs = append(k.errs, errors.Wrapf(err, "closing %s", ns))
			continue
		}
		more = true
		if k.postponed.add(ns, err, now) {
			c.log.Error("cannot write the rules of a namespace, trying again later", "family", k.family, "namespace", ns, "err", err)
		}
		c.planner.Postpone(k.family, ns, true)
		c.metrics.errors.Inc()
		k.chainsKnown = false // a program that was killed may have written them
	}
	return more
}
