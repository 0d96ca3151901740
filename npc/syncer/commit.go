package syncer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
)

// committer tells the model what became of a transaction, and decides what of the kernel has to be read again.
type committer struct {
	model   *npc.Model
	metrics *Metrics
	log     *slog.Logger
}

// commit tells the model what the kernel did not take of a transaction, and reports whether something is now left out.
func (c *committer) commit(k *kernel, r *result) (leftOut bool) {
	for _, set := range r.inUse {
		c.model.Keep(k.family, set)
	}
	c.model.ForgetAgain(k.family, r.unforgotten)
	c.model.Unadmit(k.family, r.unadmitted)
	setErrs, withoutSets := c.rejectSets(k, r.rejectedSets)
	ruleErrs, withoutRules := c.rejectRules(k, r.rules.rejected)
	withoutNamespaces := c.postpone(k, r.rules.namespaces)
	leftOut = withoutSets || withoutRules || withoutNamespaces
	setErrs, ruleErrs = slices.Concat(r.sets, setErrs), slices.Concat(r.rules.errs, ruleErrs)
	k.setsKnown = k.setsKnown && len(setErrs) == 0 && !r.unremoved
	k.chainsKnown = k.chainsKnown && len(ruleErrs) == 0
	if leftOut && len(r.rules.namespaces) == 0 && k.rejections.wait == 0 {
		k.rejections.failed(time.Now())
	}
	k.errs = slices.Concat(k.errs, setErrs, ruleErrs)
	return leftOut
}

// rejectSets makes the model leave out sets that the kernel rejected: name -> why. It returns errors about those that it cannot do without, and
// whether any is left out.
func (c *committer) rejectSets(k *kernel, sets map[string]string) (errs []error, leftOut bool) {
	others := c.model.RefuseSets(k.family, sets)
	for _, name := range others {
		errs = append(errs, errors.New(sets[name]))
	}
	return errs, len(others) < len(sets)
}

// rejectRules makes the model leave out rules that the kernel rejected. It returns errors about those that it cannot do without, and whether any is
// left out.
func (c *committer) rejectRules(k *kernel, rules []iptables.Refusal) (errs []error, leftOut bool) {
	reasons := map[string]string{}
	for _, r := range rules {
		if lacksSet(r.Err) {
			// Somebody destroyed the set after it was made: that is nothing against the rule.
			errs = append(errs, r.Err)
			k.setsKnown = false
			continue
		}
		reasons[r.ID] = r.Err.Error()
	}
	others := c.model.Refuse(k.family, reasons)
	for _, id := range others {
		errs = append(errs, errors.New(reasons[id]))
	}
	return errs, len(others) < len(reasons)
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
		c.model.Postpone(k.family, ns, true)
		c.metrics.errors.Inc()
		k.chainsKnown = false // a program that was killed may have written them
	}
	return more
}
