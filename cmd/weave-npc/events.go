package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/claims"
)

// events makes Events of objects that are not enforced as they are meant, where there is an API server to send them to.
// client-go bounds them by object and by time.
type events struct {
	recorder record.EventRecorder // nil without an API server
	node     string
}

func newEvents(ctx context.Context, client kubernetes.Interface, node string) *events {
	e := &events{node: node}
	if client != nil {
		b := record.NewBroadcaster(record.WithContext(ctx))
		b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
		e.recorder = b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "weave-npc"})
	}
	return e
}

// policy reports a policy that is not enforced as it is meant.
func (e *events) policy(p npc.InvalidPolicy) {
	if e.recorder == nil {
		return
	}
	reason, message := "Invalid", "allows nothing until it is mended: %s"
	if p.Refused {
		reason, message = "Refused", "the kernel of node "+e.node+" does not take all that it needs, which is left out: %s"
	}
	e.recorder.Eventf(&corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy",
		Namespace: p.Namespace, Name: p.Name, UID: p.UID}, corev1.EventTypeWarning, reason, message, p.Reason)
}

// conflict reports a conflict about an address on each pod that it concerns.
func (e *events) conflict(c claims.Conflict) {
	if e.recorder == nil {
		return
	}
	for _, p := range []claims.Ref{c.Pod, c.Other} {
		if p != (claims.Ref{}) {
			e.recorder.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
				corev1.EventTypeWarning, "AddressConflict", "node %s: %s", e.node, c.Message())
		}
	}
}
