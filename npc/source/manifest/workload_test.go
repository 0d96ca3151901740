package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// template is one that matches the selector of the tests.
const template = `template: {metadata: {labels: {app: web}}, spec: {nodeName: node1, containers: [{name: main, ports: [{name: http, containerPort: 80}]}]}}`

// TestWorkloadsHavePods shows what the pods of each kind are like.
func TestWorkloadsHavePods(t *testing.T) {
	const selector = "selector: {matchLabels: {app: web}}, "
	const jobLabels = " batch.kubernetes.io/job-name:x job-name:x"
	for _, c := range []struct{ kind, version, spec, labels string }{
		{"Deployment", "apps/v1", selector + template, ""},
		{"Deployment", "apps/v1", "replicas: 0, " + selector + template, ""},
		{"StatefulSet", "apps/v1", selector + template, ""},
		{"DaemonSet", "apps/v1", selector + template, ""},
		{"ReplicaSet", "apps/v1", selector + template, ""},
		{"ReplicationController", "v1", "selector: {app: web}, " + template, ""},
		{"ReplicationController", "v1", template, ""},
		{"Job", "batch/v1", template, jobLabels},
		{"Job", "batch/v1", "manualSelector: true, " + selector + template, jobLabels},
		{"CronJob", "batch/v1", "jobTemplate: {spec: {" + template + "}}", ""},
	} {
		t.Run(c.kind, func(t *testing.T) {
			text := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {namespace: shop, name: x}, spec: {%s}}", c.version, c.kind, c.spec)
			f := (Options{Workloads: true}).Parse("m.yaml", []byte(text))
			if len(f.Problems) > 0 || len(f.Objects) != 1 || f.Objects[0].String() != c.kind+" shop/x" {
				t.Fatalf("%v %v", f.Objects, f.Problems)
			}
			pod := f.Objects[0].Value.(*Workload).Pod("y")
			got, ignored := convert.OfPod(pod)
			want := fmt.Sprintf("shop/y of %s/x on node1 with [{http 6 80}], map[app:web%s]", c.kind, c.labels)
			if text := fmt.Sprintf("%s/%s of %s on %s with %v, %v", got.Namespace, got.Name, got.Workload, got.Node, got.Ports, got.Labels); text != want ||
				len(ignored) > 0 || got.UID == "" {
				t.Errorf("got  %s,\nwant %s", text, want)
			}
			list := fmt.Sprintf("{apiVersion: %s, kind: %sList, items: [{metadata: {name: x}, spec: {%s}}]}", c.version, c.kind, c.spec)
			if f := (Options{Workloads: true}).Parse("m.yaml", []byte(list)); len(f.Objects) != 1 || f.Objects[0].String() != c.kind+" default/x" {
				t.Errorf("of a list, %v %v", f.Objects, f.Problems)
			}
			for _, text := range []string{text, list, strings.Replace(text, "template", "tmplate", 1)} {
				if f := Parse("m.yaml", []byte(text)); len(f.Objects)+len(f.Problems) > 0 || len(f.Ignored) != 1 {
					t.Errorf("not ignored where workloads are not used: %v", f)
				}
			}
		})
	}
}

// TestWorkloadsAreRefused that an API server refuses, with the line.
func TestWorkloadsAreRefused(t *testing.T) {
	const head = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n"
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: web}\nspec:\n"
	selector, template := "  selector: {matchLabels: {app: web}}\n", "  "+template+"\n"
	for _, c := range []struct{ name, text, want string }{
		{"no_selector", head + template, "m.yaml:4: Deployment default/web: spec.selector: Required value"},
		{"empty_selector", head + "  selector: {}\n" + template, "m.yaml:5: Deployment default/web: spec.selector: Invalid value: {}: empty selector is invalid for Deployment"},
		{"invalid_selector", head + "  selector: {matchExpressions: [{key: a, operator: Inn}]}\n" + template, "m.yaml:5: Deployment default/web: " +
			`spec.selector.matchExpressions[0].operator: Invalid value: "Inn": not a valid selector operator`},
		{"other_labels", head + selector + strings.ReplaceAll(template, "app: web", "app: db"), "m.yaml:6: Deployment default/web: " +
			"spec.template.metadata.labels: Invalid value: {\"app\":\"db\"}: `selector` does not match template `labels`"},
		{"no_template", head + selector, "m.yaml:4: Deployment default/web: spec.template.metadata.labels: Invalid value: null: " +
			"`selector` does not match template `labels`"},
		{"unknown_field", head + selector + "  replcas: 1\n" + template, `m.yaml:6: Deployment default/web: unknown field "spec.replcas"`},
		{"invalid_label", head + selector + strings.ReplaceAll(template, "app: web", "app: web, b: -"), "m.yaml:6: Deployment default/web: " +
			`spec.template.metadata.labels: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters`},
		{"port", head + selector + strings.ReplaceAll(template, "containerPort: 80", "containerPort: 80000"), "m.yaml:6: Deployment default/web: " +
			"spec.template.spec.containers[0].ports[0].containerPort: Invalid value: 80000: must be between 1 and 65535, inclusive"},
		{"node", head + selector + strings.ReplaceAll(template, "node1", "Node_1"), "m.yaml:6: Deployment default/web: " +
			`spec.template.spec.nodeName: Invalid value: "Node_1"`},
		{"name", strings.ReplaceAll(head, "name: web", "name: Web") + selector + template, `m.yaml:3: Deployment default/Web: metadata.name: Invalid value: "Web"`},
		{"version", "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: web}\n",
			`m.yaml:1: Deployment: apiVersion "extensions/v1beta1" is not served, use "apps/v1"`},
		{"cronjob_version", "apiVersion: batch/v1beta1\nkind: CronJob\n", `m.yaml:1: CronJob: apiVersion "batch/v1beta1" is not served, use "batch/v1"`},
		{"job_selector", job + selector + strings.ReplaceAll(template, "app: web", "app: db"), "m.yaml:6: Job default/web: " +
			"spec.template.metadata.labels: Invalid value: "},
		{"long_cronjob", strings.NewReplacer("Job", "CronJob", "name: web", "name: "+strings.Repeat("a", 53)).Replace(job) + "  jobTemplate: {spec: {}}\n",
			"m.yaml:3: CronJob default/" + strings.Repeat("a", 53) + ": metadata.name: Too long: may not be more than 52 bytes"},
		{"controller_without_template", "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: web}\nspec: {selector: {a: b}}\n",
			"m.yaml:4: ReplicationController default/web: spec.template: Required value"},
		{"controller_without_labels", "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: web}\nspec: {template: {}}\n",
			"m.yaml:4: ReplicationController default/web: spec.selector: Required value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := (Options{Workloads: true}).Parse("m.yaml", []byte(c.text))
			if len(f.Problems) != 1 || !strings.HasPrefix(f.Problems[0].Error(), c.want) || len(f.Objects) > 0 {
				t.Errorf("got  %v %v\nwant %s", f.Problems, f.Objects, c.want)
			}
		})
	}
	other := "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: x}}"
	if f := (Options{Workloads: true}).Parse("m.yaml", []byte(other)); len(f.Problems)+len(f.Objects) > 0 {
		t.Errorf("of another group: %v", f)
	}
}
