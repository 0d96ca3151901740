package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// maxTypos is the number of typing errors with which a kind is still taken for one that is used.
const maxTypos = 3

// The kinds of objects that are used.
const (
	KindNamespace            = "Namespace"
	KindPod                  = "Pod"
	KindNode                 = "Node"
	KindNetworkPolicy        = "NetworkPolicy"
	KindClusterNetworkPolicy = "ClusterNetworkPolicy"
)

// The former kinds, which came before ClusterNetworkPolicy. They are only converted.
const (
	KindAdminNetworkPolicy         = "AdminNetworkPolicy"
	KindBaselineAdminNetworkPolicy = "BaselineAdminNetworkPolicy"
)

// isFormer reports whether a kind is a former one.
func isFormer(kind string, version schema.GroupVersion) bool {
	return version.Group == v1alpha1.GroupName &&
		(kind == KindAdminNetworkPolicy || kind == KindBaselineAdminNetworkPolicy)
}

// servedVersion returns the version of a kind that API servers have, and whether the kind is used.
func servedVersion(kind string) (schema.GroupVersion, bool) {
	switch kind {
	case KindNamespace, KindPod, KindNode:
		return corev1.SchemeGroupVersion, true
	case KindNetworkPolicy:
		return networkingv1.SchemeGroupVersion, true
	case KindClusterNetworkPolicy:
		return schema.GroupVersion(v1alpha2.GroupVersion), true
	}
	return workloadVersion(kind)
}

// isNamespaced reports whether objects of a kind that is used are in namespaces.
func isNamespaced(kind string) bool {
	return kind == KindPod || kind == KindNetworkPolicy || isWorkload(kind)
}

// isServed reports whether a kind is used and a version is the one that API servers have of it.
func isServed(kind string, version schema.GroupVersion) bool {
	served, ok := servedVersion(kind)
	return ok && served == version
}

// doubt returns why objects of a kind that is not used may be intended to be: another kind of policies, or one that
// the group does not have. It is empty for others.
func doubt(version schema.GroupVersion, kind string) string {
	used := slices.Values([]string{KindNetworkPolicy, KindClusterNetworkPolicy})
	known := scheme.Scheme.KnownTypes(version)
	switch {
	case isFormer(kind, version):
		return "policies of this kind are not enforced; `kubectl npc convert` makes ClusterNetworkPolicies of them"
	case strings.HasSuffix(kind, KindNetworkPolicy):
		return fmt.Sprintf("policies of this kind are not enforced; those that are have apiVersion %s and kind %s, or %s and %s",
			networkingv1.SchemeGroupVersion, KindNetworkPolicy, v1alpha2.GroupVersion, KindClusterNetworkPolicy)
	case len(known) > 0 && known[kind] == nil:
		return fmt.Sprintf("%s has no kind of this name", version) + spelling.DidYouMean(kind, maps.Keys(known))
	case spelling.Nearest(kind, used, maxTypos) != "":
		return "no policies of this kind are enforced" + spelling.DidYouMean(kind, used)
	}
	return ""
}

// isOtherVersion reports whether a kind is one that is used, in a version that is not served. The group matters: other
// groups have policies of the same name.
func isOtherVersion(kind string, version schema.GroupVersion) bool {
	switch kind {
	case KindNamespace, KindPod, KindNode:
		return version.Group == corev1.GroupName
	case KindNetworkPolicy:
		return version.Group == networkingv1.GroupName || version.Group == "extensions" ||
			version.Group == corev1.GroupName
	case KindClusterNetworkPolicy:
		return version.Group == v1alpha2.GroupName
	case kindDeployment, kindStatefulSet, kindDaemonSet, kindReplicaSet:
		return version.Group == appsv1.GroupName || version.Group == "extensions"
	case kindJob, kindCronJob:
		return version.Group == batchv1.GroupName
	case kindReplicationController:
		return version.Group == corev1.GroupName
	}
	return false
}
