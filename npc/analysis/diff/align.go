package diff

import (
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// workloadKey names a workload in a cluster state.
type workloadKey struct {
	namespace string
	npc.Workload
}

// align returns a cluster state with the pods of the other one for each workload that it has as a template, and the other
// as pods. They have the labels and ports of the template, and keep what distinguishes one pod of the workload from
// another.
func align(c *cluster.Cluster, own, other *cluster.View) *cluster.Cluster {
	templates := map[workloadKey]*npc.Pod{}
	for _, p := range own.Pods {
		if p.StandsForWorkload() {
			templates[workloadKey{p.Namespace, *p.Workload}] = p
		}
	}
	made := map[workloadKey][]*npc.Pod{}
	for _, key := range slices.Sorted(maps.Keys(other.Pods)) {
		p := other.Pods[key]
		if p.Workload == nil || p.Finished {
			continue
		}
		if p.StandsForWorkload() || own.Pods[key] != nil {
			continue
		}
		w := workloadKey{p.Namespace, *p.Workload}
		if templates[w] != nil {
			made[w] = append(made[w], p)
		}
	}
	if len(made) == 0 {
		return c
	}
	c = c.Clone()
	for w, pods := range made {
		t := templates[w]
		c.DeletePod(t.Namespace, t.Name, "")
		for _, p := range pods {
			c.SetPod(like(t, p))
		}
	}
	return c
}

// like returns a pod as its workload makes it by a template.
func like(template, p *npc.Pod) npc.Pod {
	made := *p
	made.Labels = maps.Clone(p.Labels)
	for k := range flowlog.Lasting(p.Labels) { // controllers give the others
		delete(made.Labels, k)
	}
	// These labels do not count.
	maps.DeleteFunc(made.Labels, func(k, _ string) bool {
		return k == "app.kubernetes.io/version" || k == "helm.sh/chart"
	})
	if made.Labels == nil {
		made.Labels = map[string]string{}
	}
	maps.Copy(made.Labels, template.Labels)
	made.Ports, made.HostNetwork = template.Ports, template.HostNetwork
	return made
}
