package syncer

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// result is the outcome of a transaction: what is reported to the controller, and other errors. The connections of
// addresses that changed hands are not deleted (Asked) while the kernel may still hold what the addresses had for their
// former pods.
type result struct {
	dataplane.Result
	// setErrs are why operations on sets failed, ruleErrs why rules were not written.
	setErrs, ruleErrs []error
	// rejected are the rules that the kernel does not take.
	rejected []iptables.Refusal
	// incomplete are the lists that lack a set which the kernel does not take, by name.
	incomplete map[string]bool
	// namespaces are those whose rules were not written, while those of others could be -> why.
	namespaces map[string]error
}

// committer reports the outcome of a transaction to the controller, and decides what of the kernel has to be read
// again.
type committer struct {
	planner controller.Planner
	metrics *Metrics
	log     *slog.Logger
}

// commit reports to the controller what the kernel accepted of a transaction, and returns whether something is now left
// out.
func (c *committer) commit(k *kernel, tx dataplane.Transaction, r *result) (leftOut bool) {
	rejected, lacking := c.sortRejected(r.rejected)
	r.RejectedRules = rejected
	sets, rules := c.planner.Commit(tx, r.Result)
	setErrs, ruleErrs := slices.Clone(r.setErrs), slices.Concat(r.ruleErrs, lacking)
	for _, name := range sets {
		setErrs = append(setErrs, errors.New(r.RejectedSets[name]))
	}
	for _, id := range rules {
		ruleErrs = append(ruleErrs, errors.New(rejected[id]))
	}
	leftOut = len(sets) < len(r.RejectedSets) || len(rules) < len(rejected)
	leftOut = c.postpone(k, r.namespaces) || leftOut
	k.setsKnown = k.setsKnown && len(setErrs)+len(lacking) == 0
	k.chainsKnown = k.chainsKnown && len(ruleErrs) == 0
	if leftOut && len(r.namespaces) == 0 && k.rejections.wait == 0 {
		k.rejections.failed(time.Now())
	}
	k.errs = slices.Concat(k.errs, setErrs, ruleErrs)
	return leftOut
}

// sortRejected returns why the kernel rejected rules, by their ids, and errors about those that lacked a set: another
// process destroyed it after it was made, which says nothing about the rule.
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

// lacksSet reports whether iptables did not take a rule because a set of that name does not exist.
func lacksSet(err error) bool {
	return strings.Contains(err.Error(), ": Set "+naming.SetPrefix) && strings.Contains(err.Error(), " doesn't exist")
}

// postpone leaves the rules of namespaces that could not be written for later, and reports whether more can be done
// without them.
func (c *committer) postpone(k *kernel, failed map[string]error) (more bool) {
	now := time.Now()
	for ns, err := range failed {
		if k.postponed.waits(ns) { // not even a chain without rules could be written
			k.errs = append(k.errs, errors.Wrapf(err, "closing %s", ns))
			continue
		}
		more = true
		if k.postponed.add(ns, err, now) {
			c.log.Error("cannot write the rules of a namespace, trying again later",
				"family", k.family, "namespace", ns, "err", err)
		}
		c.planner.Postpone(k.family, ns, true)
		c.metrics.errors.Inc()
		k.chainsKnown = false // a program that was killed may have written them
	}
	return more
}
