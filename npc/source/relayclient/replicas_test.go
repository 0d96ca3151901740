package relayclient

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// TestReplicasAreFollowed shows that those count which are ready, whenever that changes.
func TestReplicasAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Address: "kube-system/weave-npc-relay", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		all := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "kube-system", Name: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "weave-npc-relay"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("agents"), Port: ptr.To[int32](6785)}, {Name: ptr.To("metrics"), Port: ptr.To[int32](6786)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"192.0.2.2"}, Conditions: discoveryv1.EndpointConditions{
				Ready: ptr.To(false)}}, {Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"no address"}}},
		}
		six := all.DeepCopy()
		six.Name, six.AddressType, six.Endpoints = "b", discoveryv1.AddressTypeIPv6, []discoveryv1.Endpoint{{Addresses: []string{"2001:db8::1"}}}
		six.Ports = []discoveryv1.EndpointPort{{Port: ptr.To[int32](1), Protocol: ptr.To(corev1.ProtocolUDP)}, {Port: ptr.To[int32](2)},
			{Name: ptr.To("https"), Port: ptr.To[int32](443)}}
		client := fake.NewClientset(all)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx, client)
		}()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			got := slices.Sorted(slices.Values(r.agent.replicas.list(ctx)))
			if strings.Join(got, " ") != want {
				t.Errorf("replicas are %q, want %q", got, want)
			}
		}
		expect("192.0.2.1:6785")
		slices := client.DiscoveryV1().EndpointSlices("kube-system")
		if _, err := slices.Create(ctx, six, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("192.0.2.1:6785 [2001:db8::1]:443")
		all.Endpoints[1].Conditions.Ready = ptr.To(true)
		if _, err := slices.Update(ctx, all, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("192.0.2.1:6785 192.0.2.2:6785 [2001:db8::1]:443")
		if err := slices.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("[2001:db8::1]:443")
		cancel()
		<-done
	})
}
