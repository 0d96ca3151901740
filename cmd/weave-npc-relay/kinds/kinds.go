// Package kinds names the kinds that a relay serves: how each is read from an API server, and what of an object agents
// need.
package kinds

import (
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// Kind is one kind of objects.
type Kind struct {
	// Name is the plural, which is also the kind's label in metrics.
	Name     string
	Kind     string
	Version  schema.GroupVersion
	New      func() runtime.Object
	NewList  func() runtime.Object
	PerSpace bool // objects have a namespace
	// Optional is set if API servers may lack the kind.
	Optional bool
	strip    func(runtime.Object) runtime.Object
}

// Strip returns what agents need of an object of the kind; nil for an object of another.
func (k *Kind) Strip(o runtime.Object) runtime.Object { return k.strip(o) }

// Resource returns the kind's group, version and plural.
func (k *Kind) Resource() schema.GroupVersionResource { return k.Version.WithResource(k.Name) }

// GroupVersionKind returns the kind's group, version and singular.
func (k *Kind) GroupVersionKind() schema.GroupVersionKind { return k.Version.WithKind(k.Kind) }

// Path returns the path of lists and watches of the kind.
func (k *Kind) Path() string {
	if k.Version.Group == "" {
		return "/api/" + k.Version.Version + "/" + k.Name
	}
	return "/apis/" + k.Version.Group + "/" + k.Version.Version + "/" + k.Name
}

// All returns the kinds that agents follow.
func All() []*Kind {
	return []*Kind{
		{Name: "namespaces", Kind: "Namespace", Version: corev1.SchemeGroupVersion, strip: stripAs(convert.ReduceNamespace),
			New:     func() runtime.Object { return &corev1.Namespace{} },
			NewList: func() runtime.Object { return &corev1.NamespaceList{} }},
		{Name: "pods", Kind: "Pod", Version: corev1.SchemeGroupVersion, PerSpace: true, strip: stripAs(convert.ReducePod),
			New:     func() runtime.Object { return &corev1.Pod{} },
			NewList: func() runtime.Object { return &corev1.PodList{} }},
		{Name: "networkpolicies", Kind: "NetworkPolicy", Version: networkingv1.SchemeGroupVersion, PerSpace: true,
			strip:   stripAs(convert.ReducePolicy),
			New:     func() runtime.Object { return &networkingv1.NetworkPolicy{} },
			NewList: func() runtime.Object { return &networkingv1.NetworkPolicyList{} }},
		{Name: "nodes", Kind: "Node", Version: corev1.SchemeGroupVersion, strip: stripAs(convert.ReduceNode),
			New:     func() runtime.Object { return &corev1.Node{} },
			NewList: func() runtime.Object { return &corev1.NodeList{} }},
		{Name: "clusternetworkpolicies", Kind: "ClusterNetworkPolicy", Version: clusterPolicyVersion, Optional: true,
			strip:   stripAs(stripClusterPolicy),
			New:     func() runtime.Object { return &clusterPolicy{} },
			NewList: func() runtime.Object { return &clusterPolicyList{} }},
	}
}

// Codecs encode and decode the kinds.
type Codecs struct {
	Scheme     *runtime.Scheme
	Factory    serializer.CodecFactory
	Parameters runtime.ParameterCodec
}

// NewCodecs returns the codecs of all kinds.
func NewCodecs() (*Codecs, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, addClusterPolicy} {
		if err := add(scheme); err != nil {
			return nil, errors.Wrap(err, "registering kinds")
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return &Codecs{Scheme: scheme, Factory: serializer.NewCodecFactory(scheme),
		Parameters: runtime.NewParameterCodec(scheme)}, nil
}

// Serializer returns what a kind is served with: kinds of custom resources know no protobuf.
func (c *Codecs) Serializer(k *Kind) runtime.NegotiatedSerializer {
	if !k.Optional {
		return c.Factory
	}
	return jsonOnly{c.Factory}
}

// jsonOnly offers the JSON serializers alone.
type jsonOnly struct{ serializer.CodecFactory }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (j jsonOnly) SupportedMediaTypes() []runtime.SerializerInfo {
	var infos []runtime.SerializerInfo
	for _, info := range j.CodecFactory.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			infos = append(infos, info)
		}
	}
	return infos
}

// Client returns a client that reads a kind from an API server.
func (c *Codecs) Client(k *Kind, config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &k.Version
	config.APIPath = "/apis"
	if k.Version.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = c.Factory.WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	if k.Optional {
		config.ContentType = runtime.ContentTypeJSON
	}
	config.AcceptContentTypes = config.ContentType
	client, err := rest.RESTClientFor(config)
	return client, errors.Wrapf(err, "making a client for %s", k.Name)
}

// stripAs makes a function of objects of one of a type.
func stripAs[T any, P interface {
	*T
	runtime.Object
}](strip func(P) P) func(runtime.Object) runtime.Object {
	return func(o runtime.Object) runtime.Object {
		if p, ok := o.(P); ok {
			return strip(p)
		}
		return nil
	}
}

// Bookmark returns an event that says that a watch of the kind has reached a version.
func (k *Kind) Bookmark(version string) (watch.Event, error) {
	o := k.New()
	m, ok := o.(metav1.ObjectMetaAccessor)
	if !ok {
		return watch.Event{}, errors.Errorf("%s have no metadata", k.Name)
	}
	m.GetObjectMeta().SetResourceVersion(version)
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind())
	return watch.Event{Type: watch.Bookmark, Object: o}, nil
}
