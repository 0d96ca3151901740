package manifest

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

func validatePolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	spec := field.NewPath("spec")
	errs = append(errs, validateSelector(&p.Spec.PodSelector, spec.Child("podSelector"))...)
	for i, rule := range p.Spec.Ingress {
		path := spec.Child("ingress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, path.Child("ports"))...)
		errs = append(errs, validatePeers(rule.From, path.Child("from"))...)
	}
	for i, rule := range p.Spec.Egress {
		path := spec.Child("egress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, path.Child("ports"))...)
		errs = append(errs, validatePeers(rule.To, path.Child("to"))...)
	}
	return append(errs, validatePolicyTypes(p.Spec.PolicyTypes, spec.Child("policyTypes"))...)
}

func validatePolicyTypes(types []networkingv1.PolicyType, path *field.Path) field.ErrorList {
	known := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if len(types) > len(known) {
		return field.ErrorList{field.TooMany(path, len(types), len(known))}
	}
	var errs field.ErrorList
	for i, t := range types {
		if !slices.Contains(known, t) {
			errs = append(errs, field.NotSupported(path.Index(i), t, known))
		}
	}
	return errs
}

func validatePolicyPorts(ports []networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		path := path.Index(i)
		if p.Protocol != nil {
			errs = append(errs, validateProtocol(*p.Protocol, path.Child("protocol"))...)
		}
		switch {
		case p.Port == nil:
			if p.EndPort != nil {
				errs = append(errs, field.Invalid(path.Child("endPort"), *p.EndPort, "needs `port`"))
			}
		case p.Port.Type == intstr.String:
			for _, msg := range validation.IsValidPortName(p.Port.StrVal) {
				errs = append(errs, field.Invalid(path.Child("port"), p.Port.StrVal, msg))
			}
			if p.EndPort != nil {
				errs = append(errs, field.Invalid(path.Child("endPort"), *p.EndPort, "needs a `port` that is a number"))
			}
		default:
			errs = append(errs, validatePortNumber(p.Port.IntVal, path.Child("port"))...)
			if p.EndPort != nil {
				errs = append(errs, validatePortNumber(*p.EndPort, path.Child("endPort"))...)
				if *p.EndPort < p.Port.IntVal {
					errs = append(errs, field.Invalid(path.Child("endPort"), *p.EndPort,
						"must not be less than `port`"))
				}
			}
		}
	}
	return errs
}

func validatePeers(peers []networkingv1.NetworkPolicyPeer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range peers {
		path := path.Index(i)
		if p.PodSelector == nil && p.NamespaceSelector == nil && p.IPBlock == nil {
			errs = append(errs, field.Required(path, "one of podSelector, namespaceSelector and ipBlock"))
		}
		if p.PodSelector != nil {
			errs = append(errs, validateSelector(p.PodSelector, path.Child("podSelector"))...)
		}
		if p.NamespaceSelector != nil {
			errs = append(errs, validateSelector(p.NamespaceSelector, path.Child("namespaceSelector"))...)
		}
		if p.IPBlock != nil {
			if p.PodSelector != nil || p.NamespaceSelector != nil {
				errs = append(errs, field.Forbidden(path, "ipBlock excludes podSelector and namespaceSelector"))
			}
			errs = append(errs, validateIPBlock(p.IPBlock, path.Child("ipBlock"))...)
		}
	}
	return errs
}

func validateIPBlock(b *networkingv1.IPBlock, path *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	cidr, errs := validateCIDR(b.CIDR, path.Child("cidr"))
	for i, text := range b.Except {
		path := path.Child("except").Index(i)
		except, invalid := validateCIDR(text, path)
		errs = append(errs, invalid...)
		if cidr.IsValid() && except.IsValid() && !isStrictlyInside(except, cidr) {
			errs = append(errs, field.Invalid(path, text, "must lie inside `cidr` and be smaller"))
		}
	}
	return errs
}

func validateCIDR(text string, path *field.Path) (netip.Prefix, field.ErrorList) {
	prefix, err := ipblock.ParseCIDR(text)
	if err != nil {
		return netip.Prefix{}, field.ErrorList{field.Invalid(path, text,
			"must be a CIDR like 10.9.8.0/24 or 2001:db8::/64")}
	}
	return prefix, nil
}

// isStrictlyInside reports whether a range lies in another one and is smaller. Like an API server, it does not take
// IPv4 addresses in the form of IPv6 ones for parts of an IPv6 range.
func isStrictlyInside(small, large netip.Prefix) bool {
	return small.Bits() > large.Bits() && small.Addr().Is4In6() == large.Addr().Is4In6() && large.Contains(small.Addr())
}

func validateSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}
