package daemon

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/binding"
	"github.com/weave-npc/weave-npc/npc/source/staging"
)

// eventReporter reports policies and pods that are not enforced as specified, as Events of those objects, where there
// is an API server to send them to. Nothing waits for Events, and client-go bounds them by object and by time.
type eventReporter struct {
	recorder record.EventRecorder // nil without an API server
	node     string
}

// newEventReporter returns a reporter for a node, which sends Events until the context ends. Without a client it
// reports nothing.
func newEventReporter(ctx context.Context, client kubernetes.Interface, node string) *eventReporter {
	r := &eventReporter{node: node}
	if client != nil {
		b := record.NewBroadcaster(record.WithContext(ctx))
		b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
		r.recorder = b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "weave-npc"})
	}
	return r
}

// Policy reports a policy that is not enforced as specified.
func (r *eventReporter) Policy(p enforce.InvalidPolicy) {
	if r.recorder == nil || p.UID == "" { // domain names are those of several policies
		return
	}
	object := policyReference(p.Namespace, p.Name, p.UID)
	reason, message := "Invalid", "allows nothing until it is corrected: %s"
	if p.Cluster {
		message = "rules that are not understood fail closed until they are corrected: %s"
	}
	switch {
	case p.Inert:
		message = "decides nothing until it is corrected: %s"
	case p.Refused && p.Cluster:
		reason = "Refused"
		message = "the kernel of node " + r.node + " does not take all that it needs, which fails closed: %s"
	case p.Refused:
		reason = "Refused"
		message = "the kernel of node " + r.node + " does not take all that it needs, which is left out: %s"
	}
	r.recorder.Eventf(object, corev1.EventTypeWarning, reason, message, p.Reason)
}

// Staged reports a policy that is staged now, or that is not although it asks for it.
func (r *eventReporter) Staged(n staging.Notice) {
	if r.recorder == nil || n.Key.Apart { // one from a directory is no object
		return
	}
	kind, reason := corev1.EventTypeNormal, "Staged"
	if n.Wrong {
		kind, reason = corev1.EventTypeWarning, "NotStaged"
	}
	r.recorder.Eventf(policyReference(n.Key.Namespace, n.Key.Name, n.UID), kind, reason, "node %s: %s", r.node, n.Text)
}

// Forged reports that a pod sends with an address that is not its own.
func (r *eventReporter) Forged(o binding.Owner, text string) {
	if r.recorder == nil {
		return
	}
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	r.recorder.Eventf(pod, corev1.EventTypeWarning, "ForgedSource", "node %s: %s", r.node, text)
}

// Lacking reports that the kernel of the node lacks something.
func (r *eventReporter) Lacking(text string) {
	if r.recorder == nil {
		return
	}
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node, UID: types.UID(r.node)}
	r.recorder.Event(node, corev1.EventTypeWarning, "KernelLacks", text)
}

// policyReference returns what Events name as their object: a ClusterNetworkPolicy if there is no namespace. Its Events
// are in the namespace default.
func policyReference(namespace, name string, uid types.UID) *corev1.ObjectReference {
	o := &corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy",
		Namespace: namespace, Name: name, UID: uid}
	if namespace == "" {
		o.APIVersion, o.Kind = v1alpha2.GroupVersion.String(), "ClusterNetworkPolicy"
	}
	return o
}

// Conflict reports a conflict about an address on each pod that it concerns.
func (r *eventReporter) Conflict(c ipowner.Conflict) {
	if r.recorder == nil {
		return
	}
	for _, p := range []ipowner.Ref{c.Pod, c.Other} {
		if p != (ipowner.Ref{}) {
			pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod",
				Namespace: p.Namespace, Name: p.Name, UID: p.UID}
			r.recorder.Eventf(pod, corev1.EventTypeWarning, "AddressConflict", "node %s: %s", r.node, c.Message())
		}
	}
}
