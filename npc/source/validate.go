package source

import (
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// What follows refuses what an API server refuses on creation, as far as it concerns names, labels and the fields that
// become facts. A pod's containers and images may be left out: there may be no kubelet that starts them.

func validateNamespace(n *corev1.Namespace) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&n.ObjectMeta, false, apivalidation.NameIsDNSLabel, field.NewPath("metadata"))
}

func validatePod(p *corev1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	spec := field.NewPath("spec")
	if p.Spec.NodeName != "" {
		for _, msg := range validation.IsDNS1123Subdomain(p.Spec.NodeName) {
			errs = append(errs, field.Invalid(spec.Child("nodeName"), p.Spec.NodeName, msg))
		}
	}
	for i := range p.Spec.InitContainers {
		errs = append(errs, validateContainer(&p.Spec.InitContainers[i], spec.Child("initContainers").Index(i))...)
	}
	for i := range p.Spec.Containers {
		errs = append(errs, validateContainer(&p.Spec.Containers[i], spec.Child("containers").Index(i))...)
	}
	return append(errs, validatePodStatus(&p.Status, field.NewPath("status"))...)
}

func validateContainer(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.RestartPolicy != nil && !slices.Contains([]corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyAlways,
		corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever}, *c.RestartPolicy) {
		errs = append(errs, field.NotSupported(path.Child("restartPolicy"), *c.RestartPolicy,
			[]corev1.ContainerRestartPolicy{"Always", "OnFailure", "Never"}))
	}
	seen := map[string]bool{}
	for i, port := range c.Ports {
		path := path.Child("ports").Index(i)
		if port.Name != "" {
			for _, msg := range validation.IsValidPortName(port.Name) {
				errs = append(errs, field.Invalid(path.Child("name"), port.Name, msg))
			}
			if seen[port.Name] {
				errs = append(errs, field.Duplicate(path.Child("name"), port.Name))
			}
			seen[port.Name] = true
		}
		if port.ContainerPort == 0 {
			errs = append(errs, field.Required(path.Child("containerPort"), ""))
		} else {
			errs = append(errs, validatePortNumber(port.ContainerPort, path.Child("containerPort"))...)
		}
		errs = append(errs, validateProtocol(port.Protocol, path.Child("protocol"))...)
	}
	return errs
}

func validatePodStatus(s *corev1.PodStatus, path *field.Path) field.ErrorList {
	errs := validateAddresses(podIPs(s), path.Child("podIPs"), "ip")
	errs = append(errs, validateAddresses(hostIPs(s), path.Child("hostIPs"), "ip")...)
	if len(s.HostIPs) > 0 && s.HostIPs[0].IP != s.HostIP {
		errs = append(errs, field.Invalid(path.Child("hostIPs").Index(0).Child("ip"), s.HostIPs[0].IP,
			"must be the same as `hostIP`"))
	}
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed,
		corev1.PodUnknown}
	if !slices.Contains(phases, s.Phase) {
		errs = append(errs, field.NotSupported(path.Child("phase"), s.Phase, phases))
	}
	return errs
}

// validateAddresses wants valid addresses, at most one of each family.
func validateAddresses(texts []string, path *field.Path, child string) field.ErrorList {
	var errs field.ErrorList
	var seen4, seen6 bool
	for i, text := range texts {
		path := path.Index(i).Child(child)
		ip := netutils.ParseIPSloppy(text)
		if ip == nil {
			errs = append(errs, field.Invalid(path, text, "must be a valid IP address"))
			continue
		}
		seen := &seen6
		if ip.To4() != nil {
			seen = &seen4
		}
		if *seen {
			errs = append(errs, field.Invalid(path, text, "only one address of each family is allowed"))
		}
		*seen = true
	}
	return errs
}

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
					errs = append(errs, field.Invalid(path.Child("endPort"), *p.EndPort, "must not be less than `port`"))
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
		if cidr != nil && except != nil && !strictlyInside(except, cidr) {
			errs = append(errs, field.Invalid(path, text, "must lie inside `cidr` and be smaller"))
		}
	}
	return errs
}

func validateCIDR(text string, path *field.Path) (*net.IPNet, field.ErrorList) {
	_, ipnet, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, text, "must be a CIDR like 10.9.8.0/24 or 2001:db8::/64")}
	}
	return ipnet, nil
}

func strictlyInside(small, large *net.IPNet) bool {
	smallBits, smallLen := small.Mask.Size()
	largeBits, largeLen := large.Mask.Size()
	return smallLen == largeLen && smallBits > largeBits && large.Contains(small.IP)
}

func validateSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validatePortNumber(port int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validation.IsValidPortNum(int(port)) {
		errs = append(errs, field.Invalid(path, port, msg))
	}
	return errs
}

func validateProtocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	known := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	if slices.Contains(known, p) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, p, known)}
}
