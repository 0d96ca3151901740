package apiclient_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

const (
	policies = `{"name":"clusternetworkpolicies"}`
	former   = `{"name":"adminnetworkpolicies"},{"name":"baselineadminnetworkpolicies"},{"name":"adminnetworkpolicies/status"}`
)

func client(t *testing.T, answers map[string]string) *apiclient.PolicyClient {
	t.Helper()
	c, config := sourcetest.Answers(t, answers)
	api, err := apiclient.NewPolicyClient(c, config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// TestDiscover finds the kinds by their versions, and takes an error for no absence.
func TestDiscover(t *testing.T) {
	broken := sourcetest.Group(map[string]string{"v1alpha2": ""})
	gone := sourcetest.Group(map[string]string{"v1alpha2": policies})
	delete(gone, "/apis/policy.networking.k8s.io/v1alpha2")
	nullVersion := sourcetest.Group(map[string]string{"v1alpha2": policies})
	nullVersion["/apis/policy.networking.k8s.io/v1alpha2"] = "null"
	for _, c := range []struct {
		name    string
		answers map[string]string
		want    string // Served, OtherVersions and Former
		err     string
	}{
		{"absent", map[string]string{"/apis": "{}"}, "false [] []", ""},
		{"there", sourcetest.Group(map[string]string{"v1alpha2": policies}), "true [] []", ""},
		{"other_version", sourcetest.Group(map[string]string{"v1": policies}), "false [v1] []", ""},
		{"both", sourcetest.Group(map[string]string{"v1": policies, "v1alpha2": policies}), "true [v1] []", ""},
		{"former", sourcetest.Group(map[string]string{"v1alpha1": former}), "false [] [adminnetworkpolicies baselineadminnetworkpolicies]", ""},
		{"a_version_went_meanwhile", gone, "false [] []", ""},
		{"null", map[string]string{"/apis/policy.networking.k8s.io": "null"}, "", "the answer names none"},
		{"null_for_the_version", nullVersion, "", "the answer has those of"},
		{"group_forbidden", map[string]string{"/apis/policy.networking.k8s.io": ""}, "", "asking for the versions of policy.networking.k8s.io"},
		{"version_forbidden", broken, "", "asking for the kinds of policy.networking.k8s.io/v1alpha2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := client(t, c.answers).Discover(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error: %v", err)
				}
				return
			}
			var former []string
			for _, r := range p.Former {
				former = append(former, r.Resource)
			}
			if got := fmt.Sprint(p.Served, p.OtherVersions, former); err != nil || got != c.want {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

// TestConfirmAbsence shows that only a list of groups without the kind confirms it.
func TestConfirmAbsence(t *testing.T) {
	without := map[string]string{"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps"}]}`}
	none := map[string]string{"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`}
	for _, c := range []struct {
		name    string
		answers map[string]string
		err     string
	}{
		{"no_such_group", without, ""},
		{"group_without_the_kind", sourcetest.Group(map[string]string{"v1alpha1": former}), ""},
		{"there_again", sourcetest.Group(map[string]string{"v1alpha2": policies}), "has ClusterNetworkPolicies again"},
		{"no_group_at_all", none, "lists no group of kinds"},
		{"forbidden", map[string]string{"/apis": ""}, "asking for the groups of kinds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := client(t, c.answers).ConfirmAbsence(t.Context())
			if got := fmt.Sprint(err); c.err == "" && err != nil || !strings.Contains(got, c.err) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

// TestObjects are listed as they are stored, and read one by one.
func TestObjects(t *testing.T) {
	answers := sourcetest.Group(map[string]string{"v1alpha2": policies, "v1alpha1": former})
	maps.Copy(answers, map[string]string{
		"/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies": `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicyList",
			"metadata":{},"items":[{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"deny"}}]}`,
		"/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies": `{"apiVersion":"policy.networking.k8s.io/v1alpha1","kind":"AdminNetworkPolicyList",
			"metadata":{},"items":[]}`,
	})
	api := client(t, answers)
	list, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.(*unstructured.UnstructuredList).Items) != 1 {
		t.Errorf("listed %v, %v", list, err)
	}
	p, err := api.Discover(t.Context())
	if err != nil || len(p.Former) != 2 {
		t.Fatalf("%v, %v", p, err)
	}
	for _, r := range p.Former {
		found, err := api.Any(t.Context(), r)
		if refused := r.Resource == "baselineadminnetworkpolicies"; found || (err != nil) != refused {
			t.Errorf("%s: %t, %v", r.Resource, found, err)
		}
	}
	bad := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "deny", "uid": "1"}, "spec": "text"}}
	if decoded, why := apiclient.Decode(bad); decoded.Name != "deny" || decoded.UID != "1" || !strings.Contains(why, "spec") {
		t.Errorf("%v, %q", decoded, why)
	}
	if _, err := client(t, nil).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a list that is refused is no list")
	}
	c, _ := sourcetest.Answers(t, nil)
	if _, err := apiclient.NewPolicyClient(c, &rest.Config{Host: "http://\x7f"}); err == nil {
		t.Error("a host that is none is taken")
	}
}
