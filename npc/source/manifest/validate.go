package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// The validation refuses what an API server refuses on creation. It is limited to names, labels and the fields that
// become facts. A pod may lack containers and images: there need not be a kubelet that starts them. Objects have their
// defaults already.

func validateNamespace(n *corev1.Namespace) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&n.ObjectMeta, false, apivalidation.NameIsDNSLabel,
		field.NewPath("metadata"))
}

func validateNode(n *corev1.Node) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&n.ObjectMeta, false, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
}

func validatePod(p *corev1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	errs = append(errs, validatePodSpec(&p.Spec, field.NewPath("spec"))...)
	return append(errs, validatePodStatus(&p.Status, field.NewPath("status"))...)
}

func validatePodSpec(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.NodeName != "" {
		for _, msg := range validation.IsDNS1123Subdomain(s.NodeName) {
			errs = append(errs, field.Invalid(path.Child("nodeName"), s.NodeName, msg))
		}
	}
	for i := range s.InitContainers {
		errs = append(errs, validateContainer(&s.InitContainers[i], path.Child("initContainers").Index(i))...)
	}
	for i := range s.Containers {
		errs = append(errs, validateContainer(&s.Containers[i], path.Child("containers").Index(i))...)
	}
	return errs
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
	errs := validateAddresses(s.PodIPs, path.Child("podIPs"))
	errs = append(errs, validateAddresses(s.HostIPs, path.Child("hostIPs"))...)
	if len(s.HostIPs) > 0 && s.HostIPs[0].IP != s.HostIP {
		errs = append(errs, field.Invalid(path.Child("hostIPs").Index(0).Child("ip"), s.HostIPs[0].IP,
			"must be the same as `hostIP`"))
	}
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed,
		corev1.PodUnknown}
	if s.Phase != "" && !slices.Contains(phases, s.Phase) {
		errs = append(errs, field.NotSupported(path.Child("phase"), s.Phase, phases))
	}
	return errs
}

// validateAddresses requires valid addresses, at most one of each family.
func validateAddresses[T corev1.PodIP | corev1.HostIP](ips []T, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var seen4, seen6 bool
	for i, ip := range ips {
		text := corev1.PodIP(ip).IP
		path := path.Index(i).Child("ip")
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
