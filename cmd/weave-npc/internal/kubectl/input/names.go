package input

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// podKind and serviceKind are kinds of objects; others make pods.
const (
	podKind     = "Pod"
	serviceKind = "Service"
)

// kinds are the names that kubectl has for kinds, in the singular, and their short names.
var kinds = map[string]string{
	"pod": podKind, "po": podKind, "service": serviceKind, "svc": serviceKind,
	"deployment": "Deployment", "deploy": "Deployment", "deployment.apps": "Deployment",
	"statefulset": "StatefulSet", "sts": "StatefulSet", "statefulset.apps": "StatefulSet",
	"daemonset": "DaemonSet", "ds": "DaemonSet", "daemonset.apps": "DaemonSet",
	"replicaset": "ReplicaSet", "rs": "ReplicaSet", "replicaset.apps": "ReplicaSet",
	"replicationcontroller": "ReplicationController", "rc": "ReplicationController",
	"job": "Job", "job.batch": "Job", "cronjob": "CronJob", "cj": "CronJob", "cronjob.batch": "CronJob",
}

// kindOf returns the kind that kubectl has a name for; empty if it has none.
func kindOf(name string) string {
	name = strings.ToLower(name)
	resource, group, grouped := strings.Cut(name, ".")
	singular := strings.TrimSuffix(resource, "s")
	if grouped {
		singular += "." + group
	}
	return cmp.Or(kinds[name], kinds[singular])
}

// Named returns an end of a connection as NAMESPACE/POD, NAMESPACE/KIND/NAME or svc/NAME.NAMESPACE, if it is named as
// kubectl names objects, as pod/web or deploy/web, or without its namespace. The namespace is that of --namespace. For
// kubectl's names it is otherwise that of the kubeconfig, and the default one in manifests.
func (c *ObjectFlags) Named(end string) string {
	prefix, name, slash := strings.Cut(end, "/")
	kind := ""
	if slash && name != "" {
		kind = kindOf(prefix)
	}
	_, err := netip.ParseAddr(end)
	switch of := c.namespace(); {
	case kind == serviceKind && strings.ContainsAny(name, "./"):
		return "svc/" + name
	case kind == serviceKind:
		return "svc/" + name + "." + c.namespaceOfNames()
	case kind == podKind && !strings.Contains(name, "/"):
		return c.namespaceOfNames() + "/" + name
	case kind != "" && !strings.Contains(name, "/"):
		return c.namespaceOfNames() + "/" + kind + "/" + name
	case of == "" || end == "" || err == nil || slash:
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
