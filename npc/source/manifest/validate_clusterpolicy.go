package manifest

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// What the resource definition of ClusterNetworkPolicies limits, in its experimental channel, which has all that the
// standard one has.
const (
	maxPriority  = 1000
	maxPerList   = 25 // rules of a direction, peers and protocols of a rule, networks and domain names of a peer
	maxRuleName  = 100
	maxCIDRBytes = 43
)

// domainName is the pattern of the resource definition, except for the punctuation between Z and a, which its ranges
// let in.
var domainName = regexp.MustCompile(`^(\*\.)?([a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+` +
	`[a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$`)

// clusterPolicyValidator validates one ClusterNetworkPolicy. Label selectors, which the resource definition leaves
// unchecked, have to be valid too: a rule with another one fails closed.
type clusterPolicyValidator struct {
	given func(*field.Path) bool // whether the manifest has a field
	errs  field.ErrorList
}

func validateClusterPolicy(p *v1alpha2.ClusterNetworkPolicy, given func(*field.Path) bool) field.ErrorList {
	v := &clusterPolicyValidator{given: given}
	metadata := field.NewPath("metadata")
	v.add(apivalidation.ValidateObjectMeta(&p.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, metadata)...)
	spec := field.NewPath("spec")
	if !given(spec) {
		v.add(field.Required(spec, ""))
		return v.errs
	}
	oneOf(v, spec.Child("tier"), p.Spec.Tier, v1alpha2.AdminTier, v1alpha2.BaselineTier)
	v.priority(p.Spec.Priority, spec.Child("priority"))
	v.subject(&p.Spec.Subject, spec.Child("subject"))
	for i := range v.count(spec.Child("ingress"), len(p.Spec.Ingress), maxPerList) {
		v.ingress(&p.Spec.Ingress[i], spec.Child("ingress").Index(i))
	}
	for i := range v.count(spec.Child("egress"), len(p.Spec.Egress), maxPerList) {
		v.egress(&p.Spec.Egress[i], spec.Child("egress").Index(i))
	}
	return v.errs
}

func (v *clusterPolicyValidator) priority(n int32, path *field.Path) {
	switch {
	case !v.given(path):
		v.add(field.Required(path, ""))
	case n < 0 || n > maxPriority:
		v.add(field.Invalid(path, n, fmt.Sprintf("must be between 0 and %d, inclusive", maxPriority)))
	}
}

func (v *clusterPolicyValidator) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

// oneOf requires a text that is one of those that are known.
func oneOf[T ~string](v *clusterPolicyValidator, path *field.Path, text T, known ...T) {
	switch {
	case !v.given(path):
		v.add(field.Required(path, ""))
	case !slices.Contains(known, text):
		v.add(field.NotSupported(path, text, known))
	}
}

// count limits a list to a number of items, and returns how many of them are to be validated.
func (v *clusterPolicyValidator) count(path *field.Path, n, most int) int {
	if n > most {
		v.add(field.TooMany(path, n, most))
	}
	return min(n, most)
}

// countSome limits a list that must not be empty.
func (v *clusterPolicyValidator) countSome(path *field.Path, n, most int) int {
	if n == 0 {
		v.add(field.Required(path, "at least one item"))
	}
	return v.count(path, n, most)
}

// exactlyOne requires one of the fields of an object.
func (v *clusterPolicyValidator) exactlyOne(path *field.Path, fields ...string) {
	n := 0
	for _, f := range fields {
		if v.given(path.Child(f)) {
			n++
		}
	}
	all := spelling.List(fields)
	switch {
	case n == 0:
		v.add(field.Required(path, "one of "+all))
	case n > 1:
		v.add(field.Forbidden(path, "more than one of "+all))
	}
}

func (v *clusterPolicyValidator) subject(s *v1alpha2.ClusterNetworkPolicySubject, path *field.Path) {
	v.exactlyOne(path, "namespaces", "pods")
	v.selector(s.Namespaces, path.Child("namespaces"))
	v.pods(s.Pods, path.Child("pods"))
}

func (v *clusterPolicyValidator) ingress(r *v1alpha2.ClusterNetworkPolicyIngressRule, path *field.Path) {
	v.rule(r.Name, r.Action, r.Protocols, path)
	for i := range v.countSome(path.Child("from"), len(r.From), maxPerList) {
		v.ingressPeer(&r.From[i], path.Child("from").Index(i))
	}
}

func (v *clusterPolicyValidator) ingressPeer(p *v1alpha2.ClusterNetworkPolicyIngressPeer, path *field.Path) {
	v.exactlyOne(path, "namespaces", "pods")
	v.selector(p.Namespaces, path.Child("namespaces"))
	v.pods(p.Pods, path.Child("pods"))
}

func (v *clusterPolicyValidator) egress(r *v1alpha2.ClusterNetworkPolicyEgressRule, path *field.Path) {
	v.rule(r.Name, r.Action, r.Protocols, path)
	portless := false // a peer has no named ports
	for i := range v.countSome(path.Child("to"), len(r.To), maxPerList) {
		portless = v.egressPeer(&r.To[i], path.Child("to").Index(i)) || portless
	}
	for i := range min(len(r.Protocols), maxPerList) {
		if named := path.Child("protocols").Index(i).Child("destinationNamedPort"); portless && v.given(named) {
			v.add(field.Forbidden(named, noNamedPorts))
		}
	}
}

// noNamedPorts is why a rule must not name ports.
const noNamedPorts = "networks, nodes and domainNames have no named ports"

// egressPeer validates a peer, and reports whether it has no named ports.
func (v *clusterPolicyValidator) egressPeer(p *v1alpha2.ClusterNetworkPolicyEgressPeer, path *field.Path) bool {
	v.exactlyOne(path, "namespaces", "pods", "nodes", "networks", "domainNames")
	v.selector(p.Namespaces, path.Child("namespaces"))
	v.pods(p.Pods, path.Child("pods"))
	v.selector(p.Nodes, path.Child("nodes"))
	v.networks(p.Networks, path.Child("networks"))
	v.domainNames(p.DomainNames, path.Child("domainNames"))
	return p.Nodes != nil || p.Networks != nil || p.DomainNames != nil
}

// rule validates what rules of both directions have.
func (v *clusterPolicyValidator) rule(name string, action v1alpha2.ClusterNetworkPolicyRuleAction,
	protocols []v1alpha2.ClusterNetworkPolicyProtocol, path *field.Path) {
	if utf8.RuneCountInString(name) > maxRuleName {
		v.add(field.TooLong(path.Child("name"), name, maxRuleName))
	}
	oneOf(v, path.Child("action"), action,
		v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		v1alpha2.ClusterNetworkPolicyRuleActionPass)
	if protocols == nil {
		return
	}
	for i := range v.countSome(path.Child("protocols"), len(protocols), maxPerList) {
		p, path := &protocols[i], path.Child("protocols").Index(i)
		v.exactlyOne(path, "tcp", "udp", "sctp", "destinationNamedPort")
		if p.TCP != nil {
			v.port(p.TCP.DestinationPort, path.Child("tcp", "destinationPort"))
		}
		if p.UDP != nil {
			v.port(p.UDP.DestinationPort, path.Child("udp", "destinationPort"))
		}
		if p.SCTP != nil {
			v.port(p.SCTP.DestinationPort, path.Child("sctp", "destinationPort"))
		}
	}
}

func (v *clusterPolicyValidator) port(p *v1alpha2.Port, path *field.Path) {
	if p == nil {
		v.add(field.Required(path, ""))
		return
	}
	v.exactlyOne(path, "number", "range")
	if v.given(path.Child("number")) {
		v.add(validatePortNumber(p.Number, path.Child("number"))...)
	}
	if p.Range == nil {
		return
	}
	path = path.Child("range")
	before := len(v.errs)
	for _, end := range []struct {
		name string
		port int32
	}{{"start", p.Range.Start}, {"end", p.Range.End}} {
		if !v.given(path.Child(end.name)) {
			v.add(field.Required(path.Child(end.name), ""))
			continue
		}
		v.add(validatePortNumber(end.port, path.Child(end.name))...)
	}
	if len(v.errs) == before && p.Range.Start >= p.Range.End {
		v.add(field.Invalid(path.Child("end"), p.Range.End, "must be greater than `start`"))
	}
}

func (v *clusterPolicyValidator) selector(s *metav1.LabelSelector, path *field.Path) {
	if s != nil {
		v.add(validateSelector(s, path)...)
	}
}

func (v *clusterPolicyValidator) pods(p *v1alpha2.NamespacedPod, path *field.Path) {
	if p == nil {
		return
	}
	v.selector(&p.NamespaceSelector, path.Child("namespaceSelector"))
	if !v.given(path.Child("podSelector")) {
		v.add(field.Required(path.Child("podSelector"), ""))
		return
	}
	v.selector(&p.PodSelector, path.Child("podSelector"))
}

func (v *clusterPolicyValidator) networks(networks []v1alpha2.CIDR, path *field.Path) {
	if networks == nil {
		return
	}
	for i := range v.countSome(path, len(networks), maxPerList) {
		n, path := networks[i], path.Index(i)
		prefix, err := netip.ParsePrefix(string(n))
		switch {
		case len(n) > maxCIDRBytes:
			v.add(field.TooLong(path, n, maxCIDRBytes))
		case err != nil:
			v.add(field.Invalid(path, n, "must be a CIDR like 10.9.8.0/24 or 2001:db8::/64"))
		case prefix.Addr().Is4In6():
			v.add(field.Invalid(path, n, "must not be an IPv4 CIDR in the form of an IPv6 one"))
		case slices.Contains(networks[:i], n):
			v.add(field.Duplicate(path, n))
		}
	}
}

func (v *clusterPolicyValidator) domainNames(names []v1alpha2.DomainName, path *field.Path) {
	if names == nil {
		return
	}
	for i := range v.countSome(path, len(names), maxPerList) {
		n, path := names[i], path.Index(i)
		switch {
		case !domainName.MatchString(string(n)):
			v.add(field.Invalid(path, n, "must be a domain name like example.com or *.example.com"))
		case slices.Contains(names[:i], n):
			v.add(field.Duplicate(path, n))
		}
	}
}
