package manifest

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds of workloads.
const (
	kindDeployment            = "Deployment"
	kindStatefulSet           = "StatefulSet"
	kindDaemonSet             = "DaemonSet"
	kindReplicaSet            = "ReplicaSet"
	kindReplicationController = "ReplicationController"
	kindJob                   = "Job"
	kindCronJob               = "CronJob"
)

// WorkloadKinds returns the kinds of workloads, those first that others may own last.
func WorkloadKinds() []string {
	return []string{kindDeployment, kindStatefulSet, kindDaemonSet, kindCronJob, kindJob,
		kindReplicaSet, kindReplicationController}
}

func isWorkload(kind string) bool { return slices.Contains(WorkloadKinds(), kind) }

// workloadVersion returns the version of a kind of workloads that API servers have.
func workloadVersion(kind string) (schema.GroupVersion, bool) {
	switch kind {
	case kindDeployment, kindStatefulSet, kindDaemonSet, kindReplicaSet:
		return appsv1.SchemeGroupVersion, true
	case kindJob, kindCronJob:
		return batchv1.SchemeGroupVersion, true
	case kindReplicationController:
		return corev1.SchemeGroupVersion, true
	}
	return schema.GroupVersion{}, false
}

// Workload is an object of one of WorkloadKinds, limited to what describes its pods: its type, metadata and template,
// with defaults.
type Workload struct{ corev1.PodTemplate }

// Pod returns a pod as the workload makes it, under a name. It is not scheduled, unless the template names a node, and
// has no address.
func (w *Workload) Pod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: w.Template.Labels,
		Annotations: w.Template.Annotations, CreationTimestamp: w.CreationTimestamp}, Spec: w.Template.Spec}
	isController := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: w.APIVersion, Kind: w.Kind,
		Name: w.Name, UID: w.UID, Controller: &isController}}
	setPodDefaults(p)
	return p
}

// workloadParts are the parts of a workload that matter for its pods.
type workloadParts struct {
	meta     *metav1.ObjectMeta
	selector *metav1.LabelSelector
	template *corev1.PodTemplateSpec
	// spec is the path of the field that has the selector and the template.
	spec string
}

// decodeWorkload reads an object of one of WorkloadKinds.
func (p *parser) decodeWorkload(n node, kind string) {
	switch kind {
	case kindDeployment:
		decodeWorkloadAs(p, n, kind, func(o *appsv1.Deployment) workloadParts {
			return workloadParts{&o.ObjectMeta, o.Spec.Selector, &o.Spec.Template, "spec"}
		})
	case kindStatefulSet:
		decodeWorkloadAs(p, n, kind, func(o *appsv1.StatefulSet) workloadParts {
			return workloadParts{&o.ObjectMeta, o.Spec.Selector, &o.Spec.Template, "spec"}
		})
	case kindDaemonSet:
		decodeWorkloadAs(p, n, kind, func(o *appsv1.DaemonSet) workloadParts {
			return workloadParts{&o.ObjectMeta, o.Spec.Selector, &o.Spec.Template, "spec"}
		})
	case kindReplicaSet:
		decodeWorkloadAs(p, n, kind, func(o *appsv1.ReplicaSet) workloadParts {
			return workloadParts{&o.ObjectMeta, o.Spec.Selector, &o.Spec.Template, "spec"}
		})
	case kindReplicationController:
		decodeWorkloadAs(p, n, kind, controllerParts)
	case kindJob:
		decodeWorkloadAs(p, n, kind, func(o *batchv1.Job) workloadParts {
			return workloadParts{&o.ObjectMeta, o.Spec.Selector, &o.Spec.Template, "spec"}
		})
	case kindCronJob:
		decodeWorkloadAs(p, n, kind, func(o *batchv1.CronJob) workloadParts {
			job := &o.Spec.JobTemplate.Spec
			return workloadParts{&o.ObjectMeta, job.Selector, &job.Template, "spec.jobTemplate.spec"}
		})
	}
}

// controllerParts returns the parts of a ReplicationController. Without a selector, it selects the labels of its
// template.
func controllerParts(o *corev1.ReplicationController) workloadParts {
	if len(o.Spec.Selector) == 0 && o.Spec.Template != nil {
		o.Spec.Selector = o.Spec.Template.Labels
	}
	parts := workloadParts{meta: &o.ObjectMeta, template: o.Spec.Template, spec: "spec"}
	if len(o.Spec.Selector) > 0 {
		parts.selector = &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
	}
	return parts
}
