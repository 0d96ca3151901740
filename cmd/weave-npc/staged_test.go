package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/rootcmd"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// apiServer starts a server with policies and pods of weave-npc, each on the node of its name, and returns a kubeconfig
// for it.
func apiServer(t *testing.T, policies []string, pods ...string) string {
	t.Helper()
	list := func(apiVersion, kind string, items []string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`, apiVersion, kind, strings.Join(items, ","))
	}
	for i, text := range pods {
		node, args, _ := strings.Cut(text, " ")
		words, err := json.Marshal(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		pods[i] = fmt.Sprintf(`{"metadata":{"namespace":"kube-system","name":"npc-%s"},"status":{"phase":"Running"},
			"spec":{"hostNetwork":true,"nodeName":%q,"containers":[{"name":"weave-npc","args":%s}]}}`, node, node, words)
	}
	var namespaced, cluster []string
	for _, text := range policies {
		name, annotations, _ := strings.Cut(text, " ")
		if namespace, name, is := strings.Cut(name, "/"); is {
			namespaced = append(namespaced, fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"annotations":{%s}},"spec":{"podSelector":{}}}`,
				namespace, name, annotations))
			continue
		}
		cluster = append(cluster, fmt.Sprintf(`{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":
			{"name":%q,"annotations":{%s}},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}}}}`, name, annotations))
	}
	const group = "policy.networking.k8s.io/v1alpha2"
	answers := sourcetest.Group(map[string]string{"v1alpha2": `{"name":"clusternetworkpolicies","kind":"ClusterNetworkPolicy"}`})
	answers["/api/v1/namespaces"] = list("v1", "NamespaceList", []string{`{"metadata":{"name":"shop"}}`})
	answers["/api/v1/pods"] = list("v1", "PodList", append(pods, `{"metadata":{"namespace":"shop","name":"db"},
		"spec":{"nodeName":"a"},"status":{"phase":"Running","podIP":"10.32.0.2","podIPs":[{"ip":"10.32.0.2"}]}}`))
	answers["/apis/networking.k8s.io/v1/networkpolicies"] = list("networking.k8s.io/v1", "NetworkPolicyList", namespaced)
	answers["/apis/"+group+"/clusternetworkpolicies"] = list(group, "ClusterNetworkPolicyList", cluster)
	_, config := sourcetest.Answers(t, answers)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\n", config.Host)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestS102_NodesThatEnforceStagedPolicies are named by show policies, and none is named if none enforces them.
func TestS102_NodesThatEnforceStagedPolicies(t *testing.T) {
	const inNamespace, inCluster, none = `shop/deny "weave-npc/staged":"true"`, `fence "weave-npc/staged":"true"`, "shop/deny"
	for _, c := range []struct {
		name, flag     string
		policies, pods []string
		want           string
	}{
		{"all_stage", "--staged=namespaces", []string{inNamespace}, []string{"a --staged=namespaces", "b --staged=all"}, ""},
		{"one_does_not", "--staged=namespaces", []string{inNamespace}, []string{"a --staged=namespaces", "b"},
			"node b runs weave-npc without --staged=namespaces: there the annotated policies are enforced"},
		{"many_do_not", "--staged=namespaces", []string{inNamespace}, []string{"e", "d", "c", "b", "a --staged=off"},
			"nodes a, b, c (and 2 more) run weave-npc without --staged=namespaces: there the annotated policies are enforced"},
		{"of_each_kind", "--staged=all", []string{inNamespace, inCluster}, []string{"a --staged=namespaces", "b", "c --staged all"},
			"node b runs weave-npc without --staged=namespaces: there the annotated policies are enforced\n" +
				"weave-npc: nodes a, b run weave-npc without --staged=all: there the annotated ClusterNetworkPolicies are enforced"},
		{"only_of_the_kind_that_is_staged", "--staged=all", []string{inNamespace}, []string{"a --staged=namespaces"}, ""},
		{"not_known", "--staged=namespaces", []string{inNamespace}, []string{"a --staged=$(MODE)", "b --staged=all"},
			"whether node a runs weave-npc with --staged=namespaces, or the annotated policies are enforced there, is not known: " +
				"the pod's definition refers to something else for it"},
		{"no_pods", "--staged=namespaces", []string{inNamespace}, nil,
			"whether nodes enforce the annotated policies is not known: no pod with the label network-policy-controller=weave-npc runs"},
		{"nothing_staged", "--staged=all", []string{none}, []string{"a"}, ""},
		{"not_asked_about", "--staged=off", []string{inNamespace}, []string{"a"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, code := execute(t, "show", "policies", "--kubeconfig", apiServer(t, c.policies, c.pods...), c.flag)
			said, _, _ := strings.Cut(out, "POLICY ")
			want := ""
			if c.want != "" {
				want = "weave-npc: " + c.want + "\n"
			}
			if diff := cmp.Diff(want, said); diff != "" || code != 0 || said == out {
				t.Errorf("it ends with %d (-want +got):\n%s%s", code, diff, out)
			}
		})
	}
}

// TestS102_AnswersFollowTheNodes where no flag says how they run: they take for enforced what the nodes enforce, and
// are not given if that is not known.
func TestS102_AnswersFollowTheNodes(t *testing.T) {
	const denied, allowed, unknown = 1, 0, 2
	const annotated, inCluster = `shop/deny "weave-npc/staged":"true"`, `fence "weave-npc/staged":"true"`
	for _, c := range []struct {
		name           string
		policies, pods []string
		code           int
		want           string
	}{
		{"they_stage", []string{annotated}, []string{"a --staged=namespaces", "b --staged=all"}, allowed, ""},
		{"they_do_not", []string{annotated}, []string{"a", "b --staged=off"}, denied,
			"1 policy is annotated weave-npc/staged and is taken for enforced: the nodes run without --staged"},
		{"they_differ", []string{annotated}, []string{"a", "b --staged=all"}, unknown,
			"node a runs weave-npc without --staged=namespaces: there the annotated policies are enforced; " +
				"give --staged=off, namespaces or all"},
		{"one_is_not_known", []string{annotated}, []string{"a --staged=$(MODE)", "b --staged=all"}, unknown, "whether node a runs"},
		{"none_is_known", []string{annotated}, nil, unknown, "whether nodes enforce the annotated policies is not known: no pod"},
		{"none_matters", []string{"shop/deny"}, []string{"a", "b --staged=all"}, denied, ""},
		{"they_differ_about_cluster_policies", []string{inCluster}, []string{"a --staged=namespaces", "b --staged=all"}, unknown,
			"node a runs weave-npc without --staged=all: there the annotated ClusterNetworkPolicies are enforced"},
		{"they_differ_about_legacy_policies", []string{"shop/deny"}, []string{"a --use-legacy-netpol", "b"}, unknown,
			"give it, or --use-legacy-netpol=false"},
		{"they_run_legacy_policies", []string{"shop/deny"}, []string{"a --use-legacy-netpol"}, allowed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, code := execute(t, "explain", "--kubeconfig", apiServer(t, c.policies, c.pods...), "--from", "192.0.2.1", "--to", "shop/db", "--port", "80")
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("it ends with %d, want %d\n%s", code, c.code, out)
			}
		})
	}
}

// TestS102_CheckNotesWhatNodesEnforce of the policies that are annotated, where it looks for what is wrong.
func TestS102_CheckNotesWhatNodesEnforce(t *testing.T) {
	out, code := execute(t, "check", "cluster", "--kubeconfig", apiServer(t, []string{`shop/deny "weave-npc/staged":"true"`}, "a --staged=off"))
	want := "weave-npc: 1 policy is annotated weave-npc/staged and is taken for enforced: the nodes run without --staged\n"
	const warning = "\nwarning: NetworkPolicy shop/deny: metadata.annotations.weave-npc/staged: " +
		"has no effect: nodes run without --staged, and enforce the policy [annotation-unclear]\n"
	if !strings.HasPrefix(out, want) || !strings.Contains(out, warning) || code != 0 {
		t.Errorf("it ends with %d\n%s", code, out)
	}
}

// TestS102_NodesAsJSON shows the fields for the nodes that enforce a staged policy.
func TestS102_NodesAsJSON(t *testing.T) {
	kubeconfig := apiServer(t, []string{`shop/deny "weave-npc/staged":"true"`, `fence "weave-npc/staged":"true"`},
		"a --staged=namespaces", "b", "c --staged=$(MODE)", "d", "e", "f", "g")
	out, code := execute(t, "show", "policies", "--kubeconfig", kubeconfig, "--staged=all", "-o", "json")
	_, text, _ := strings.Cut(out, "\n[")
	var got []struct {
		Policy string
		Staged *struct {
			Group      string
			EnforcedOn []string `json:"enforced_on"`
			UnknownOn  []string `json:"unknown_on"`
		}
	}
	if err := json.Unmarshal([]byte("["+text), &got); err != nil || code != 0 {
		t.Fatalf("%v, status %d\n%s", err, code, out)
	}
	var lines []string
	for _, p := range got {
		lines = append(lines, fmt.Sprint(p.Policy, *p.Staged))
	}
	if got := strings.Join(lines, "\n"); got != "fence{true [a b d e f g] [c]}\nshop/deny{true [b d e f g] [c]}" {
		t.Errorf("%s", got)
	}
}

// TestS102_ThePluginKnowsGroups as weave-npc itself does.
func TestS102_ThePluginKnowsGroups(t *testing.T) {
	var out bytes.Buffer
	root := rootcmd.Plugin()
	root.SetArgs([]string{"explain", "--manifests", "testdata/staged", "--from", "ops/mon", "--to", "shop/db", "--port", "tcp/9187", "--staged-group=rollout"})
	root.SetOut(&out)
	if err := root.Execute(); err != nil || !strings.Contains(out.String(), "policy shop/db-next") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
