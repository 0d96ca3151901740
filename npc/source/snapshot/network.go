package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
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
	// Entrances are those of manifests, or of an API server if they are listed too.
	Entrances []Entrance
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

// ListEntrances reads the Ingresses and HTTPRoutes too, if the user may list them.
func (n *Network) ListEntrances(ctx context.Context, client kubernetes.Interface) {
	list, err := client.NetworkingV1().Ingresses(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		n.Unreadable = append(n.Unreadable, fmt.Sprintf("ingresses cannot be listed: %v", err))
	} else {
		for i := range list.Items {
			n.Entrances = append(n.Entrances, ofIngress(&list.Items[i]))
		}
	}
	routes, err := listRoutes(ctx, client.Discovery())
	if err != nil {
		n.Unreadable = append(n.Unreadable, fmt.Sprintf("httproutes cannot be listed: %v", err))
	}
	for i := range routes {
		n.Entrances = append(n.Entrances, routes[i].entrance())
	}
}

// listRoutes lists HTTPRoutes; none if the API server does not have the kind.
func listRoutes(ctx context.Context, client discovery.DiscoveryInterface) ([]httpRoute, error) {
	served, err := client.ServerResourcesForGroupVersion(gatewayVersion)
	isRoute := func(r metav1.APIResource) bool { return r.Kind == kindHTTPRoute }
	switch {
	case apierrors.IsNotFound(err), err == nil && !slices.ContainsFunc(served.APIResources, isRoute):
		return nil, nil
	case err != nil:
		return nil, err
	}
	text, err := client.RESTClient().Get().AbsPath("/apis/" + gatewayVersion + "/httproutes").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []httpRoute `json:"items"`
	}
	err = json.Unmarshal(text, &list)
	return list.Items, err
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

// Network reads the Services, EndpointSlices, Nodes and Entrances. It skips files that Objects refuses.
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
	for i := range n.Entrances {
		e := &n.Entrances[i]
		e.Namespace = cmp.Or(e.Namespace, m.Namespace, metav1.NamespaceDefault)
		for j := range e.Backends {
			e.Backends[j].Namespace = cmp.Or(e.Backends[j].Namespace, e.Namespace)
		}
		if m.kustomized {
			e.Line = 1 // lines of what kustomize prints are in no file
		}
	}
	return n, err
}

// networkKinds match documents that may have the kinds.
var networkKinds = regexp.MustCompile("Service|EndpointSlice|Node|Ingress|" + kindHTTPRoute)

// readFile reads the Services, EndpointSlices, Nodes and Entrances of a file. Manifests.Objects reads the others.
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
		if !networkKinds.Match(document) {
			continue
		}
		known := len(n.Entrances)
		if err := n.readObject(document); err != nil {
			n.Unreadable = append(n.Unreadable, fmt.Sprintf("%s: %v", path, err))
		}
		for i := known; i < len(n.Entrances); i++ {
			n.Entrances[i].Path = path
			n.Entrances[i].Line = 1 + bytes.Count(data[:max(0, bytes.Index(data, bytes.TrimSpace(document)))], []byte("\n"))
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
	case "networking.k8s.io/v1 Ingress":
		return addEntrance(n, document, ofIngress)
	case gatewayVersion + " " + kindHTTPRoute:
		return addEntrance(n, document, (*httpRoute).entrance)
	case "v1 List", "v1 ServiceList", "discovery.k8s.io/v1 EndpointSliceList", "v1 NodeList",
		"networking.k8s.io/v1 IngressList", gatewayVersion + " " + kindHTTPRoute + "List":
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

// addEntrance decodes an object that is an entrance.
func addEntrance[T any](n *Network, document []byte, of func(*T) Entrance) error {
	var decoded []*T
	if err := add(document, &decoded); err != nil {
		return err
	}
	n.Entrances = append(n.Entrances, of(decoded[0]))
	return nil
}

const (
	kindIngress    = "Ingress"
	kindHTTPRoute  = "HTTPRoute"
	gatewayVersion = "gateway.networking.k8s.io/v1"
)

// Entrance is an Ingress or an HTTPRoute: a controller leads connections from outside to Services by it.
type Entrance struct {
	Kind, Namespace, Name string
	Backends              []Backend
	// Path and Line are where it is in manifests; empty and 0 if it is in none.
	Path string
	Line int
}

// Backend is a port of a Service, by its number or by its name.
type Backend struct{ Namespace, Service, Port string }

func ofIngress(o *networkingv1.Ingress) Entrance {
	e := Entrance{Kind: kindIngress, Namespace: o.Namespace, Name: o.Name}
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			e.add(Backend{o.Namespace, b.Service.Name, cmp.Or(b.Service.Port.Name, tcp(b.Service.Port.Number))})
		}
	}
	add(o.Spec.DefaultBackend)
	for _, r := range o.Spec.Rules {
		if r.HTTP != nil {
			for i := range r.HTTP.Paths {
				add(&r.HTTP.Paths[i].Backend)
			}
		}
	}
	return e
}

func tcp(port int32) string { return fmt.Sprintf("tcp/%d", port) }

// add adds a backend once.
func (e *Entrance) add(b Backend) {
	if !slices.Contains(e.Backends, b) {
		e.Backends = append(e.Backends, b)
	}
}

// httpRoute is what is read of an HTTPRoute.
type httpRoute struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Rules []struct {
			BackendRefs []struct {
				Group     string `json:"group"`
				Kind      string `json:"kind"`
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
				Port      int32  `json:"port"`
			} `json:"backendRefs"`
		} `json:"rules"`
	} `json:"spec"`
}

// entrance returns the Services that the route leads to. Other kinds of backends are none.
func (o *httpRoute) entrance() Entrance {
	e := Entrance{Kind: kindHTTPRoute, Namespace: o.Namespace, Name: o.Name}
	for _, r := range o.Spec.Rules {
		for _, b := range r.BackendRefs {
			if b.Group == "" && cmp.Or(b.Kind, "Service") == "Service" {
				e.add(Backend{cmp.Or(b.Namespace, o.Namespace), b.Name, tcp(b.Port)})
			}
		}
	}
	return e
}
