package flow

import (
	"cmp"
	"strings"
)

// The kinds of objects that make no pods.
const (
	KindPod     = "Pod"
	KindService = "Service"
)

// Object is an object by kubectl's name of its kind.
type Object struct {
	// Namespace is empty if the name has none.
	Namespace, Kind, Name string
}

// kinds are the names that kubectl has for kinds, in the singular, and their short names.
var kinds = map[string]string{
	"pod": KindPod, "po": KindPod, "service": KindService, "svc": KindService,
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

// ParseObject reads KIND/NAME and NAMESPACE/KIND/NAME, as deploy/web and shop/deploy/web, and of Services also
// svc/NAME.NAMESPACE and svc/NAMESPACE/NAME.
func ParseObject(text string) (o Object, ok bool) {
	switch parts := strings.Split(text, "/"); {
	case len(parts) == 2:
		o = Object{Kind: kindOf(parts[0]), Name: parts[1]}
		if name, namespace, dotted := strings.Cut(o.Name, "."); dotted && o.Kind == KindService {
			o.Name, o.Namespace = name, strings.TrimSuffix(strings.TrimSuffix(namespace, ".cluster.local"), ".svc")
		}
	case len(parts) == 3 && kindOf(parts[0]) == KindService:
		o = Object{parts[1], KindService, parts[2]}
	case len(parts) == 3 && parts[0] != "":
		o = Object{parts[0], kindOf(parts[1]), parts[2]}
	}
	return o, o.Kind != "" && o.Name != ""
}
