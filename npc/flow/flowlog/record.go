package flowlog

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/npc/flow"
)

// Verdict is what a node did with connections.
type Verdict string

// The verdicts. Scripts read them in JSON.
const (
	Allowed Verdict = "allowed"
	Denied  Verdict = "denied"
)

func (v Verdict) known() bool { return v == Allowed || v == Denied }

// Record is connections from one workload to another one, to one port and with one verdict. Ends that are no pods are
// distinguished by address.
type Record struct {
	// First and Last are when the first and the last of the connections were opened.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Count is how many connections there were. Replied is how many of them are known to have got a reply: 0 only if
	// that was seen of none.
	Count   uint64 `json:"count"`
	Replied uint64 `json:"replied,omitempty"`
	// Node is the node that saw the connections.
	Node string       `json:"node,omitempty"`
	From End          `json:"from"`
	To   End          `json:"to"`
	Port flow.Service `json:"port"`
	// PortNames are the names that the destination gives to the port.
	PortNames []string `json:"port_names,omitempty"`
	Verdict   Verdict  `json:"verdict"`
	// By is the rule that decided the last of them; nil if none did, because nothing isolated the pods or no rule
	// allowed it.
	By *RuleRef `json:"by,omitempty"`
	// Staged are the groups of staged policies that would decide otherwise.
	Staged []Staged `json:"staged,omitempty"`
}

// Staged is what a group of staged policies would do with connections of a record.
type Staged struct {
	Group   string  `json:"group"`
	Verdict Verdict `json:"verdict"`
	// Policy is the staged policy that decides the last of them, and By the rule, which may be of another policy; nil
	// if none does.
	Policy string   `json:"policy"`
	By     *RuleRef `json:"by,omitempty"`
	// Count is how many of the record's connections the group would decide otherwise. First and Last are when the first
	// and the last of them were opened. All three are reset when the group's policies change, that is, when Content
	// differs.
	Count   uint64    `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Content string    `json:"content,omitempty"`
}

// End is one end of connections: the pods of a workload, or an address that is no pod's.
type End struct {
	Namespace string `json:"namespace,omitempty"`
	// Workload is what the pods belong to, by kind and name: Deployment/web, or Pod/web for a pod that belongs to
	// nothing.
	Workload string `json:"workload,omitempty"`
	// Pod is the last pod that was seen, and Labels are those that it had then.
	Pod    string            `json:"pod,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Addr is the address that was seen last.
	Addr netip.Addr `json:"address"`
	// NodeAddr is set if the address is a node's.
	NodeAddr bool `json:"node,omitempty"`
	// DomainNames are a few names that a pod with domain names in its policies knew the address of a destination by, when
	// that was known last.
	DomainNames []string `json:"domain_names,omitempty"`
}

const (
	// maxWorkload is how many bytes of a workload's kind and name are recorded: more than Kubernetes has of its own.
	maxWorkload = 320
	// maxLabels is how many labels of a pod are recorded.
	maxLabels = 64
	// maxDomainNames is how many domain names of an address are read.
	maxDomainNames = 16
)

// clean makes an end one that Read accepts, and bounds it. A pod's owner reference may have any text for kind and name,
// and a pod may have labels of a megabyte: of one with too many, none are recorded.
func (e *End) clean() {
	e.Workload = strings.Map(func(r rune) rune {
		if r != ' ' && strconv.IsPrint(r) { // a blank separates the columns of tables
			return r
		}
		return '?'
	}, e.Workload[:min(len(e.Workload), maxWorkload)])
	if len(e.Labels) > maxLabels {
		e.Labels = nil
	}
}

// IsPod reports whether the end is pods.
func (e End) IsPod() bool { return e.Workload != "" }

// RuleRef names a rule of a policy.
type RuleRef struct {
	// Tier is Admin or Baseline; empty for a NetworkPolicy.
	Tier string `json:"tier,omitempty"`
	// Policy is a NetworkPolicy's namespace/name, or a ClusterNetworkPolicy's name.
	Policy string `json:"policy"`
	// Number counts the rules of a direction from 1; 0 if the policies isolate the pod and no rule allows the
	// connection.
	Number    int    `json:"rule,omitempty"`
	Direction string `json:"direction"`
}

// Applied is a rule as it was when it decided.
type Applied struct {
	RuleRef
	// Content is the same as long as the rule matches the same and does the same with it.
	Content string `json:"content"`
}

// Between is what connections between the same ends and to the same port have in common, whichever node saw them and
// whatever became of them.
type Between struct {
	from, to party
	port     flow.Service
}

// party is a workload or an address.
type party struct {
	workload
	addr netip.Addr
}

type workload struct{ namespace, name string }

// Between returns what other records of the same connections have in common with this one.
func (r *Record) Between() Between { return Between{r.From.party(), r.To.party(), r.Port} }

func (e *End) party() party {
	if e.IsPod() {
		return party{workload: workload{e.Namespace, e.Workload}}
	}
	return party{addr: e.Addr}
}
