package lint

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// Finding is something that is wrong with an object, or may be.
type Finding struct {
	Rule  string // the ID of one of Rules
	Level Level
	// Message is one line. Detail is more about it, in lines; it may be empty.
	Message, Detail string
	// Kind, Namespace and Name are those of the object. A ClusterNetworkPolicy has no namespace.
	Kind, Namespace, Name string
	// File and Line are where the object is, or the field of it that the finding is about; empty and 0 if it is in no
	// file.
	File string
	Line int
}

// linter holds the objects and what is found.
type linter struct {
	snapshot.Objects
	*pods
	// ignored holds the rules that a policy silences.
	ignored map[subject]map[string]bool
	// clusterIPs are those of Services, sorted.
	clusterIPs []clusterIP
	// missing are the namespaces that are said not to exist.
	missing map[string]bool
	found   []Finding
}

// subject is the object that a finding is about.
type subject struct{ kind, namespace, name string }

func policySubject(m metav1.Object) subject {
	if m.GetNamespace() == "" {
		return subject{manifest.KindClusterNetworkPolicy, "", m.GetName()}
	}
	return subject{manifest.KindNetworkPolicy, m.GetNamespace(), m.GetName()}
}

// add adds a finding of a rule about a field of an object, which may be empty. Its level is that of the rule.
func (l *linter) add(r RuleInfo, s subject, field, message, detail string) {
	l.addAs(r.Level, r, s, field, message, detail)
}

func (l *linter) addAs(level Level, r RuleInfo, s subject, field, message, detail string) {
	if l.ignored[s][r.ID] {
		return
	}
	f := Finding{Rule: r.ID, Level: level, Message: message, Detail: detail, Kind: s.kind, Namespace: s.namespace,
		Name: s.name}
	f.File, f.Line = l.Positions.Of(s.kind, s.namespace, s.name, field)
	if field != "" {
		f.Message = field + ": " + message
	}
	l.found = append(l.found, f)
}

// writtenRule is a rule of a NetworkPolicy, of either direction.
type writtenRule struct {
	field string // "spec.ingress[0]"
	side  string // "from" or "to"
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func writtenRules(p *networkingv1.NetworkPolicy, d npc.Direction) (out []writtenRule) {
	if d == npc.Ingress {
		for i, r := range p.Spec.Ingress {
			out = append(out, writtenRule{fmt.Sprintf("spec.ingress[%d]", i), "from", r.From, r.Ports})
		}
		return out
	}
	for i, r := range p.Spec.Egress {
		out = append(out, writtenRule{fmt.Sprintf("spec.egress[%d]", i), "to", r.To, r.Ports})
	}
	return out
}

func podName(p *npc.Pod) string { return "pod " + p.Namespace + "/" + p.Name }

// selectorText returns a selector as a part of a sentence.
func selectorText(s policy.Selector) string {
	if text := s.String(); text != "" {
		return text
	}
	return "any labels"
}

// isOfTheSystem reports whether every cluster has a namespace of a name.
func isOfTheSystem(name string) bool {
	return name == metav1.NamespaceDefault || strings.HasPrefix(name, "kube-")
}
