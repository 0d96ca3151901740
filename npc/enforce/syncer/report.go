package syncer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
)

const (
	// sameFailure is how often the log repeats why something still fails, if it fails for other reasons than before.
	sameFailure = time.Minute
	// namedInReport is how many of the things found a report names.
	namedInReport = 5
)

// reporter reports what is not enforced as specified, and when it is again: to the log and the metrics, and policies
// also to a function.
type reporter struct {
	lookup  controller.Lookup
	metrics *Metrics
	log     *slog.Logger
	// policy is called with each policy that is not enforced as specified.
	policy func(enforce.InvalidPolicy)

	// rejected are the policies that were reported because the kernel rejects something of them: name -> policy.
	rejected map[string]enforce.InvalidPolicy
	// loggingRejected is why blocked packets are not reported, as last logged; empty if they are.
	loggingRejected string
}

// invalid reports the policies that turned out to be invalid.
func (r *reporter) invalid() {
	for _, p := range r.lookup.Unreported() {
		switch {
		case p.Inert:
			r.log.Error("cluster network policy is invalid: it decides nothing until it is valid",
				"policy", policyName(p), "reason", p.Reason)
		case p.Cluster:
			r.log.Error("cluster network policy is invalid: its rules that are not understood "+
				"fail closed until it is valid",
				"policy", policyName(p), "reason", p.Reason)
		default:
			r.log.Error("policy is invalid: it isolates its pods and allows nothing until it is valid",
				"policy", policyName(p), "reason", p.Reason)
		}
		r.policy(p)
	}
}

// rejections reports, each once, the policies that the kernel rejects parts of, and those that it does not reject any
// more. It returns whether the kernel rejects anything.
func (r *reporter) rejections() bool {
	rejected := map[string]enforce.InvalidPolicy{}
	for _, p := range r.lookup.Rejected() {
		key := policyName(p)
		rejected[key] = p
		if r.rejected[key].UID != p.UID || r.rejected[key].Name == "" {
			what := "is left out"
			if p.Cluster {
				what = "denies everything where it does not accept"
			}
			r.log.Error("the kernel refuses what a policy needs: it "+what+", and is tried again later",
				"policy", key, "reason", p.Reason)
			r.policy(p)
		}
	}
	for key := range r.rejected {
		if _, still := rejected[key]; !still {
			r.log.Info("the kernel refuses nothing of a policy any more", "policy", key)
		}
	}
	r.rejected = rejected
	r.metrics.rejected.Set(float64(len(rejected)))
	return r.logging() || len(rejected) > 0
}

// policyName returns the name of a policy, with its namespace if it has one.
func policyName(p enforce.InvalidPolicy) string {
	if p.Cluster {
		return p.Name
	}
	return npc.ObjectKey(p.Namespace, p.Name)
}

// logging reports whether the kernel rejects rules that report blocked packets.
func (r *reporter) logging() (rejected bool) {
	why := r.lookup.LoggingRejected()
	switch {
	case why != "" && r.loggingRejected == "":
		r.log.Warn("the kernel does not take a rule that reports blocked packets: they are dropped without a report",
			"reason", why)
	case why == "" && r.loggingRejected != "":
		r.log.Info("the kernel takes the rules that report blocked packets")
	}
	r.loggingRejected = why
	return why != ""
}

// failed reports that a kernel could not be brought up to date, and spaces out the tries.
func (r *reporter) failed(k *kernel, now time.Time) {
	texts := make([]string, 0, len(k.errs))
	for _, err := range k.errs {
		r.metrics.errors.Inc()
		texts = append(texts, err.Error())
	}
	was := k.failing
	k.failing = summary(texts)
	if was == "" || was != k.failing && now.Sub(k.failingLogged) >= sameFailure {
		r.log.Error("cannot bring the kernel up to date, trying again", "family", k.family, "err", k.failing)
		k.failingLogged = now
	}
	if was == "" {
		k.failingSince = now
	}
	r.metrics.failing.WithLabelValues(k.family.String()).Set(1)
	k.retry.failed(now)
}

// upToDate reports that a kernel holds what is wanted, if it did not before.
func (r *reporter) upToDate(k *kernel, now time.Time) {
	if k.failing != "" {
		r.log.Info("the kernel is up to date again", "family", k.family, "after", now.Sub(k.failingSince))
		if k.rejections.wait > 0 {
			k.rejections.at = now // what it lacked it may have lacked for policies too
		}
	}
	k.failing = ""
	k.retry.reset()
	r.metrics.failing.WithLabelValues(k.family.String()).Set(0)
	for ns, since := range k.postponed.written() {
		r.log.Info("the rules of a namespace are written again",
			"family", k.family, "namespace", ns, "after", time.Since(since))
	}
}

// flows reports whether the connections of addresses that changed hands can be deleted.
func (r *reporter) flows(k *kernel, now time.Time) {
	err, _ := k.flows.Trouble(now)
	switch {
	case err != nil && k.flowsFailing == "":
		r.metrics.errors.Inc()
		r.log.Error("cannot delete the connections of addresses that other pods have now: these are not opened; "+
			"trying again",
			"family", k.family, "err", err)
		k.flowsFailing = err.Error()
	case err == nil && k.flowsFailing != "":
		r.log.Info("connections of addresses that other pods have now can be deleted again", "family", k.family)
		k.flowsFailing = ""
	}
}

// problems describes what is not enforced as specified.
func (r *reporter) problems(kernels []*kernel, now time.Time) []string {
	var texts []string
	for _, k := range kernels {
		if k.failing != "" {
			texts = append(texts, "the kernel cannot be brought up to date: "+k.family.String()+": "+k.failing)
		}
	}
	for _, k := range kernels {
		if why := conntrack.Explain(k.flows.Trouble(now)); why != "" {
			texts = append(texts, k.family.String()+": "+why)
		}
		if names := slices.Sorted(maps.Keys(k.postponed)); len(names) > 0 {
			texts = append(texts, fmt.Sprintf("the rules of these namespaces cannot be written: %s: %s (%s: %s)",
				k.family,
				listOf(names, namedInReport), names[0], k.postponed[names[0]].why))
		}
	}
	if names := r.lookup.Inert(); len(names) > 0 {
		texts = append(texts, "these cluster network policies decide nothing, "+
			"because their tier or subject is not understood: "+
			listOf(names, namedInReport))
	}
	if len(r.rejected) > 0 {
		texts = append(texts, "the kernel refuses what these policies need: "+
			strings.Join(slices.Sorted(maps.Keys(r.rejected)), ", "))
	}
	return texts
}

// summary joins the first few of the things found.
func summary(found []string) string {
	if more := len(found) - namedInReport; more > 0 {
		return strings.Join(found[:namedInReport], "; ") + "; and more"
	}
	return strings.Join(found, "; ")
}
