package input

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// Named returns an end of a connection as NAMESPACE/POD, NAMESPACE/KIND/NAME or svc/NAME.NAMESPACE, if it is named as
// kubectl names objects, as pod/web, deploy/web or shop/deploy/web, or without its namespace. The namespace is that of --namespace. For
// kubectl's names it is otherwise that of the kubeconfig, and the default one in manifests.
func (c *ObjectFlags) Named(end string) string {
	o, isObject := flow.ParseObject(end)
	_, err := netip.ParseAddr(end)
	switch of := c.namespace(); {
	case strings.HasPrefix(end, "["): // the labels of a pod
		return c.namespaceOfNames() + "/" + end
	case isObject:
		namespace := o.Namespace
		if namespace == "" {
			namespace = c.namespaceOfNames()
		}
		switch o.Kind {
		case flow.KindService:
			return "svc/" + o.Name + "." + namespace
		case flow.KindPod:
			return namespace + "/" + o.Name
		}
		return namespace + "/" + o.Kind + "/" + o.Name
	case of == "" || end == "" || err == nil || strings.Contains(end, "/"):
		return end
	default:
		return of + "/" + end
	}
}

// namespaceOfNames returns the namespace of what is named without one.
func (c *ObjectFlags) namespaceOfNames() string {
	of := c.namespace()
	if of == "" && c.Manifests == "" {
		of = apiclient.NamespaceOfUser(c.Access)
	}
	return cmp.Or(of, "default")
}
