package manifest

import (
	"fmt"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

const (
	// maxFormerList limits rules of a direction, and peers and ports of a rule, of the former kinds.
	maxFormerList = 100
	// baselineName is the only name that a BaselineAdminNetworkPolicy may have.
	baselineName = "default"
)

// formerPolicy is what a policy of a former kind has.
type formerPolicy struct {
	metav1.ObjectMeta
	v1alpha1.AdminNetworkPolicySpec
	tier v1alpha2.Tier
}

func ofAdmin(p *v1alpha1.AdminNetworkPolicy) formerPolicy {
	return formerPolicy{p.ObjectMeta, p.Spec, v1alpha2.AdminTier}
}

// ofBaseline returns a BaselineAdminNetworkPolicy with the last priority of its tier, which leaves room for others.
func ofBaseline(p *v1alpha1.BaselineAdminNetworkPolicy) formerPolicy {
	spec := v1alpha1.AdminNetworkPolicySpec{Priority: maxPriority, Subject: p.Spec.Subject}
	for _, r := range p.Spec.Ingress {
		spec.Ingress = append(spec.Ingress, v1alpha1.AdminNetworkPolicyIngressRule{
			Name: r.Name, Action: v1alpha1.AdminNetworkPolicyRuleAction(r.Action), From: r.From, Ports: r.Ports})
	}
	for _, r := range p.Spec.Egress {
		rule := v1alpha1.AdminNetworkPolicyEgressRule{
			Name: r.Name, Action: v1alpha1.AdminNetworkPolicyRuleAction(r.Action), Ports: r.Ports}
		for _, to := range r.To {
			rule.To = append(rule.To, v1alpha1.AdminNetworkPolicyEgressPeer{
				Namespaces: to.Namespaces, Pods: to.Pods, Nodes: to.Nodes, Networks: to.Networks})
		}
		spec.Egress = append(spec.Egress, rule)
	}
	return formerPolicy{p.ObjectMeta, spec, v1alpha2.BaselineTier}
}

// converter makes a ClusterNetworkPolicy of one policy of a former kind. It refuses what an API server refuses in the
// former kind, and what a ClusterNetworkPolicy cannot have.
type converter struct {
	clusterPolicyValidator
	tier v1alpha2.Tier
}

// convertFormer returns the ClusterNetworkPolicy with the same meaning. The function given reports whether the manifest
// has a field.
func convertFormer(p formerPolicy, given func(*field.Path) bool) (*v1alpha2.ClusterNetworkPolicy, field.ErrorList) {
	c := converter{clusterPolicyValidator{given: given}, p.tier}
	return c.convert(p), c.errs
}

// convert returns the policy without what an API server or a controller has written into the former one.
func (c *converter) convert(p formerPolicy) *v1alpha2.ClusterNetworkPolicy {
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	c.add(apivalidation.ValidateObjectMeta(&p.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, metadata)...)
	if c.tier == v1alpha2.BaselineTier && p.Name != baselineName {
		c.add(field.NotSupported(metadata.Child("name"), p.Name, []string{baselineName}))
	}
	out := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace,
		Labels: p.Labels, Annotations: p.Annotations}}
	delete(out.Annotations, corev1.LastAppliedConfigAnnotation)
	if !c.given(spec) {
		c.add(field.Required(spec, ""))
		return out
	}
	if c.tier == v1alpha2.AdminTier {
		c.priority(p.Priority, spec.Child("priority"))
	}
	out.Spec = v1alpha2.ClusterNetworkPolicySpec{Tier: c.tier, Priority: p.Priority}
	out.Spec.Subject.Namespaces = p.Subject.Namespaces
	out.Spec.Subject.Pods = c.podsOf(p.Subject.Pods, spec.Child("subject", "pods"))
	c.subject(&out.Spec.Subject, spec.Child("subject"))
	for i := range c.count(spec.Child("ingress"), len(p.Ingress), maxFormerList) {
		out.Spec.Ingress = append(out.Spec.Ingress, c.ingressOf(&p.Ingress[i], spec.Child("ingress").Index(i))...)
	}
	for i := range c.count(spec.Child("egress"), len(p.Egress), maxFormerList) {
		out.Spec.Egress = append(out.Spec.Egress, c.egressOf(&p.Egress[i], spec.Child("egress").Index(i))...)
	}
	c.limitRules(spec.Child("ingress"), len(out.Spec.Ingress))
	c.limitRules(spec.Child("egress"), len(out.Spec.Egress))
	return out
}

// limitRules refuses more rules than a ClusterNetworkPolicy may have. Which of two policies of one priority decides is
// not defined, so rules cannot go on in another one.
func (c *converter) limitRules(path *field.Path, n int) {
	if n > maxPerList {
		c.add(field.Forbidden(path, fmt.Sprintf(
			"makes %d rules, and a ClusterNetworkPolicy has at most %d; join rules, or divide the policy", n, maxPerList)))
	}
}

func (c *converter) podsOf(p *v1alpha1.NamespacedPod, path *field.Path) *v1alpha2.NamespacedPod {
	if p != nil && !c.given(path.Child("namespaceSelector")) {
		c.add(field.Required(path.Child("namespaceSelector"), ""))
	}
	return (*v1alpha2.NamespacedPod)(p)
}

// actionOf validates the name and the action of a rule, and returns the action.
func (c *converter) actionOf(name string, action v1alpha1.AdminNetworkPolicyRuleAction, path *field.Path,
) v1alpha2.ClusterNetworkPolicyRuleAction {
	if utf8.RuneCountInString(name) > maxRuleName {
		c.add(field.TooLong(path.Child("name"), name, maxRuleName))
	}
	known := []v1alpha1.AdminNetworkPolicyRuleAction{v1alpha1.AdminNetworkPolicyRuleActionAllow,
		v1alpha1.AdminNetworkPolicyRuleActionDeny}
	if c.tier == v1alpha2.AdminTier {
		known = append(known, v1alpha1.AdminNetworkPolicyRuleActionPass)
	}
	oneOf(&c.clusterPolicyValidator, path.Child("action"), action, known...)
	if action == v1alpha1.AdminNetworkPolicyRuleActionAllow {
		return v1alpha2.ClusterNetworkPolicyRuleActionAccept
	}
	return v1alpha2.ClusterNetworkPolicyRuleAction(action)
}

// ingressOf returns the rules that match what a rule matches: several if it has more peers or ports than one may have.
func (c *converter) ingressOf(r *v1alpha1.AdminNetworkPolicyIngressRule, path *field.Path,
) (rules []v1alpha2.ClusterNetworkPolicyIngressRule) {
	action := c.actionOf(r.Name, r.Action, path)
	var peers []v1alpha2.ClusterNetworkPolicyIngressPeer
	for i := range c.countSome(path.Child("from"), len(r.From), maxFormerList) {
		path := path.Child("from").Index(i)
		p := v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: r.From[i].Namespaces,
			Pods: c.podsOf(r.From[i].Pods, path.Child("pods"))}
		c.ingressPeer(&p, path)
		peers = append(peers, p)
	}
	protocols := c.protocolsOf(r.Ports, path.Child("ports"), false)
	for from := range slices.Chunk(peers, maxPerList) {
		for _, some := range chunks(protocols) {
			rules = append(rules, v1alpha2.ClusterNetworkPolicyIngressRule{
				Name: r.Name, Action: action, From: from, Protocols: some})
		}
	}
	return rules
}

// egressOf does the same as ingressOf.
func (c *converter) egressOf(r *v1alpha1.AdminNetworkPolicyEgressRule, path *field.Path,
) (rules []v1alpha2.ClusterNetworkPolicyEgressRule) {
	action := c.actionOf(r.Name, r.Action, path)
	var peers []v1alpha2.ClusterNetworkPolicyEgressPeer
	portless := false // a peer has no named ports
	for i := range c.countSome(path.Child("to"), len(r.To), maxFormerList) {
		to, path := &r.To[i], path.Child("to").Index(i)
		p := v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: to.Namespaces,
			Pods: c.podsOf(to.Pods, path.Child("pods")), Nodes: to.Nodes,
			Networks: texts[v1alpha2.CIDR](to.Networks), DomainNames: texts[v1alpha2.DomainName](to.DomainNames)}
		portless = c.egressPeer(&p, path) || portless
		peers = append(peers, p)
	}
	protocols := c.protocolsOf(r.Ports, path.Child("ports"), portless)
	for to := range slices.Chunk(peers, maxPerList) {
		for _, some := range chunks(protocols) {
			rules = append(rules, v1alpha2.ClusterNetworkPolicyEgressRule{
				Name: r.Name, Action: action, To: to, Protocols: some})
		}
	}
	return rules
}

// texts returns texts of another type. An empty list stays one.
func texts[To, From ~string](from []From) []To {
	if from == nil {
		return nil
	}
	to := make([]To, len(from))
	for i, text := range from {
		to[i] = To(text)
	}
	return to
}

// chunks divides protocols into lists as a rule may have them. None stand for all, which is one list.
func chunks(all []v1alpha2.ClusterNetworkPolicyProtocol) [][]v1alpha2.ClusterNetworkPolicyProtocol {
	if len(all) == 0 {
		return [][]v1alpha2.ClusterNetworkPolicyProtocol{nil}
	}
	return slices.Collect(slices.Chunk(all, maxPerList))
}

// protocolsOf returns the ports of a rule. If a peer of it is portless, they must not have names.
func (c *converter) protocolsOf(ports *[]v1alpha1.AdminNetworkPolicyPort, path *field.Path, portless bool,
) (all []v1alpha2.ClusterNetworkPolicyProtocol) {
	if ports == nil {
		return nil
	}
	for i := range c.countSome(path, len(*ports), maxFormerList) {
		p, path := (*ports)[i], path.Index(i)
		c.exactlyOne(path, "portNumber", "namedPort", "portRange")
		switch {
		case p.NamedPort != nil:
			c.namedPort(*p.NamedPort, path.Child("namedPort"), portless)
			all = append(all, v1alpha2.ClusterNetworkPolicyProtocol{DestinationNamedPort: *p.NamedPort})
		case p.PortNumber != nil:
			path := path.Child("portNumber")
			c.add(validatePortNumber(p.PortNumber.Port, path.Child("port"))...)
			all = append(all, c.protocolOf(p.PortNumber.Protocol, v1alpha2.Port{Number: p.PortNumber.Port}, path))
		case p.PortRange != nil:
			port := c.rangeOf(p.PortRange, path.Child("portRange"))
			all = append(all, c.protocolOf(p.PortRange.Protocol, port, path.Child("portRange")))
		}
	}
	return all
}

func (c *converter) namedPort(name string, path *field.Path, portless bool) {
	switch {
	case name == "":
		c.add(field.Required(path, ""))
	case portless:
		c.add(field.Forbidden(path, noNamedPorts))
	}
}

// rangeOf returns a range of ports. A ClusterNetworkPolicy has no range of one port.
func (c *converter) rangeOf(r *v1alpha1.PortRange, path *field.Path) v1alpha2.Port {
	before := len(c.errs)
	c.add(validatePortNumber(r.Start, path.Child("start"))...)
	c.add(validatePortNumber(r.End, path.Child("end"))...)
	if len(c.errs) == before && r.Start > r.End {
		c.add(field.Invalid(path.Child("end"), r.End, "must not be less than `start`"))
	}
	if r.Start == r.End {
		return v1alpha2.Port{Number: r.Start}
	}
	return v1alpha2.Port{Range: &v1alpha2.PortRange{Start: r.Start, End: r.End}}
}

// protocolOf returns a port of a protocol, which is TCP by default.
func (c *converter) protocolOf(protocol corev1.Protocol, port v1alpha2.Port, path *field.Path,
) v1alpha2.ClusterNetworkPolicyProtocol {
	switch protocol {
	case "", corev1.ProtocolTCP:
		return v1alpha2.ClusterNetworkPolicyProtocol{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: &port}}
	case corev1.ProtocolUDP:
		return v1alpha2.ClusterNetworkPolicyProtocol{UDP: &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: &port}}
	case corev1.ProtocolSCTP:
		return v1alpha2.ClusterNetworkPolicyProtocol{SCTP: &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: &port}}
	}
	c.add(validateProtocol(protocol, path.Child("protocol"))...)
	return v1alpha2.ClusterNetworkPolicyProtocol{}
}
