package speed

import (
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/weave-npc/weave-npc/ipset"
)

// floorSet holds the probing pod while it has its label.
const floorSet = "floor"

// floor runs three informers that keep next to nothing, and writes only the label of the probing pod to the kernel.
func floor(url string) error {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: url, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}})
	if err != nil {
		return err
	}
	kernel, err := ipset.Open()
	if err != nil {
		return err
	}
	defer kernel.Close()
	set := ipset.Set{Name: floorSet, Type: ipset.HashIP, Family: ipset.IPv4}
	if err := kernel.Apply([]ipset.Op{{Kind: ipset.Create, Set: set}}); err != nil {
		return err
	}
	all := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(keepLittle))
	_, err = all.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, obj any) {
		before, now := old.(*corev1.Pod).Labels["probe"], obj.(*corev1.Pod).Labels["probe"]
		if now == before {
			return
		}
		op := ipset.Op{Kind: ipset.Delete, Set: set, Elements: []ipset.Element{{Entry: ipset.Addr(netip.MustParseAddr(probeAddr))}}}
		if now == "true" {
			op.Kind = ipset.Add
		}
		if err := kernel.Apply([]ipset.Op{op}); err != nil {
			fmt.Fprintln(os.Stderr, "floor:", err)
		}
	}})
	if err != nil {
		return err
	}
	all.Core().V1().Namespaces().Informer()
	all.Networking().V1().NetworkPolicies().Informer()
	all.Start(nil)
	for kind, synced := range all.WaitForCacheSync(nil) {
		if !synced {
			return errors.Errorf("%v: not synced", kind)
		}
	}
	fmt.Fprintln(os.Stderr, readyWords)
	debug.FreeOSMemory()
	select {} // until the benchmark kills this process
}

// keepLittle keeps the least that is called a pod.
func keepLittle(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	return &corev1.Pod{Status: corev1.PodStatus{PodIPs: p.Status.PodIPs, Phase: p.Status.Phase}, ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels}}, nil
}
