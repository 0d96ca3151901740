package cluster

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// NamespaceFits reports whether a selector matches the labels of a namespace. A namespace that does not exist matches
// none; of one that could not be read, only the label with its name is known.
func NamespaceFits(v *View, s policy.Selector, namespace string) policy.Fit {
	if !v.Unreadable.Namespaces.Lacks(namespace) {
		known, exists := v.Namespaces[namespace]
		return policy.FitOf(exists && s.Matches(known.Labels))
	}
	unmet, possible := s.Unmet(map[string]string{corev1.LabelMetadataName: namespace})
	if !possible {
		return policy.Never
	}
	for i := range unmet {
		if unmet[i].Key() == corev1.LabelMetadataName {
			return policy.Never
		}
	}
	for _, key := range s.Keys() {
		if key != corev1.LabelMetadataName {
			return policy.Maybe // a label that it has could be one that it must not have
		}
	}
	return policy.Always
}

// UnreadablePod returns why an end may be a pod that could not be read; empty if it is none. Such a pod has no object
// in the View: its labels and named ports are not known, nor which policies select it.
func UnreadablePod(v *View, e flow.End) string {
	why := v.Unreadable.Pods.Reason
	switch {
	case why == "" || e.Outside:
		return ""
	case e.Pod != "":
		namespace, _, _ := strings.Cut(e.Pod, "/")
		if v.Pods[e.Pod] == nil && v.Unreadable.Pods.Lacks(namespace) {
			return "pod " + e.Pod + " cannot be read: " + why
		}
		return ""
	case !e.Addr.IsValid():
		return why
	case v.IsNodes(e.Addr) || len(v.NodesAt(e.Addr)) > 0 || e.Addr.IsMulticast() || len(v.claims[e.Addr]) > 0:
		return ""
	}
	return e.Addr.String() + " may be the address of a pod that cannot be read: " + why
}

// findUnreadable returns the end of a pod that could not be read; ok is false if a text names none.
func findUnreadable(v *View, text string) (e flow.End, ok bool) {
	namespace, name, two := strings.Cut(text, "/")
	if _, err := netip.ParseAddr(text); err == nil || !two || name == "" || strings.Contains(name, "/") {
		return e, false
	}
	e.Pod = text
	return e, UnreadablePod(v, e) != "" && namespace != ""
}
