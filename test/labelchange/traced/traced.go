// Command traced enforces a policy in the network namespace that it runs in, changes a label of a pod that the policy
// names as a peer, and prints the functions that are called until the kernel has the change: goroutine, depth, function, caller.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/test/labelchange/calls"
)

const (
	node    = "node1"
	between = 5 * time.Millisecond
	// written is the function that has the kernel change sets.
	written = "ipset.(*Conn).Apply"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := trace(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// trace enforces the policy, changes the label and writes the calls.
func trace(ctx context.Context, w io.Writer) error {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: meta("", "shop")}, pod("web", "10.32.0.2", "server"),
		pod("front", "10.32.0.3", "client"), policy())
	c := controller.New(enforce.Config{NodeName: node, MaxListSize: 8, ForwardJump: true,
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.32.0.0/24")}})
	families := []npc.Family{npc.IPv4}
	s, err := syncer.New(c, families, iptables.NFT, syncer.NewMetrics(prometheus.NewRegistry(), c, families),
		slog.New(slog.DiscardHandler), func(enforce.InvalidPolicy) {})
	if err != nil {
		return err
	}
	defer s.Close()
	failed := make(chan error, 2)
	go func() { failed <- s.Run(ctx, false) }()
	go func() { failed <- source.FromAPI(client, nil, "").Run(ctx, c, slog.New(slog.DiscardHandler)) }()
	until := func(ok func() bool) error {
		for !ok() {
			select {
			case err := <-failed:
				return errors.Wrap(err, "following the objects, and enforcing the policy")
			case <-ctx.Done():
				return errors.Wrap(ctx.Err(), "waiting for the kernel")
			case <-time.After(between):
			}
		}
		return nil
	}
	if err := until(func() bool { return s.Ready() == "" && c.Planner().Waiting() == 0 }); err != nil {
		return err
	}
	calls.Start()
	if err := relabel(ctx, client); err != nil {
		return err
	}
	if err := until(func() bool { return calls.Called(written) }); err != nil {
		return err
	}
	for _, call := range calls.Stop() {
		_, err := fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", call.Goroutine, call.Depth, call.Function, call.Caller)
		if err != nil {
			return errors.Wrap(err, "writing the calls")
		}
	}
	return nil
}

// relabel changes the label by which the policy names the pod front as a peer.
func relabel(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Pods("shop").Update(ctx, pod("front", "10.32.0.3", "other"), metav1.UpdateOptions{})
	return errors.Wrap(err, "changing the label of pod shop/front")
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "1"}
}

func pod(name, addr, role string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta("shop", name), Spec: corev1.PodSpec{NodeName: node}}
	p.Labels = map[string]string{"app": name, "role": role}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}}
	return p
}

// policy lets pods with role=client reach those with app=web.
func policy() *networkingv1.NetworkPolicy {
	from := metav1.LabelSelector{MatchLabels: map[string]string{"role": "client"}}
	p := &networkingv1.NetworkPolicy{ObjectMeta: meta("shop", "web")}
	p.Spec.PodSelector.MatchLabels = map[string]string{"app": "web"}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{{PodSelector: &from}}}}
	return p
}
