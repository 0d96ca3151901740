package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// Network has the objects that refer to pods and explain other addresses. No policy depends on it.
type Network struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Nodes    []*corev1.Node
	// Unreadable has a line for each kind or file that could not be read, with the reason.
	Unreadable []string
}

// ListNetwork reads the network objects that the user may list. Services that may not be listed in all namespaces are
// read in the given ones.
func ListNetwork(ctx context.Context, client kubernetes.Interface, namespaces ...string) (n Network) {
	unreadable := func(kind string, err error) {
		if err != nil {
			n.Unreadable = append(n.Unreadable, fmt.Sprintf("%s cannot be listed: %v", kind, err))
		}
	}
	l := lister{client, namespaces}
	var partly npc.Partly
	var err error
	n.Services, partly, err = some(l, "services", func(namespace string) ([]*corev1.Service, error) {
		list, err := client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return pointers(list.Items), nil
	})
	unreadable("services", cause(partly, err))
	n.Slices, partly, err = some(l, "endpointslices", func(namespace string) ([]*discoveryv1.EndpointSlice, error) {
		list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return pointers(list.Items), nil
	})
	unreadable("endpointslices", cause(partly, err))
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	unreadable("nodes", err)
	if err == nil {
		n.Nodes = pointers(nodes.Items)
	}
	return n
}

// cause returns why not all of a kind was read; nil if it was.
func cause(p npc.Partly, err error) error {
	if err == nil && p.Reason != "" {
		return errors.New(p.Said)
	}
	return errors.Cause(err)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, 0, len(items))
	for i := range items {
		out = append(out, &items[i])
	}
	return out
}

// Network reads the Services, EndpointSlices and Nodes. It skips files that Objects refuses.
func (m *Manifests) Network() (n Network, err error) {
	_, err = m.parse(func(path string, text []byte) manifest.File {
		n.readFile(path, text)
		return manifest.File{}
	})
	for _, o := range n.Services {
		o.Namespace = cmp.Or(o.Namespace, m.Namespace, metav1.NamespaceDefault)
	}
	for _, o := range n.Slices {
		o.Namespace = cmp.Or(o.Namespace, m.Namespace, metav1.NamespaceDefault)
	}
	return n, err
}

// readFile reads the Services, EndpointSlices and Nodes of a file. Manifests.Objects reads the others.
func (n *Network) readFile(path string, data []byte) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				n.Unreadable = append(n.Unreadable, fmt.Sprintf("%s: %v", path, err))
			}
			return
		}
		if bytes.Contains(document, []byte("Service")) || bytes.Contains(document, []byte("EndpointSlice")) ||
			bytes.Contains(document, []byte("Node")) {
			if err := n.readObject(document); err != nil {
				n.Unreadable = append(n.Unreadable, fmt.Sprintf("%s: %v", path, err))
			}
		}
	}
}

func (n *Network) readObject(document []byte) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Items           []any `json:"items"`
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return nil //nolint:nilerr // what does not parse is for Manifests.Objects to report
	}
	kind := head.Kind
	switch head.APIVersion + " " + kind {
	case "v1 Service":
		return add(document, &n.Services)
	case "discovery.k8s.io/v1 EndpointSlice":
		return add(document, &n.Slices)
	case "v1 Node":
		return add(document, &n.Nodes)
	case "v1 List", "v1 ServiceList", "discovery.k8s.io/v1 EndpointSliceList", "v1 NodeList":
		for _, item := range head.Items {
			if fields, ok := item.(map[string]any); ok && fields["kind"] == nil && kind != "List" {
				fields["apiVersion"], fields["kind"] = head.APIVersion, strings.TrimSuffix(kind, "List")
			}
			text, err := yaml.Marshal(item)
			if err != nil {
				return err
			}
			if err := n.readObject(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// add decodes an object.
func add[T any](document []byte, to *[]*T) error {
	o := new(T)
	if err := yaml.Unmarshal(document, o); err != nil {
		return err
	}
	*to = append(*to, o)
	return nil
}
