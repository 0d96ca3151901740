package main

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

func object(resource schema.GroupVersionResource, kind, name string, annotations map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	o.SetName(name)
	o.SetAnnotations(annotations)
	return o
}

func TestFindKind(t *testing.T) {
	definition := func(channel string) *unstructured.Unstructured {
		return object(definitions, "CustomResourceDefinition", "clusternetworkpolicies.policy.networking.k8s.io",
			map[string]string{"policy.networking.k8s.io/channel": channel, "policy.networking.k8s.io/bundle-version": "v0.2.0"})
	}
	for name, c := range map[string]struct {
		objects      []runtime.Object
		absent       bool
		nodes        int
		experimental bool
		channel, err string
	}{
		"standard":             {objects: []runtime.Object{definition("standard")}, nodes: 2, channel: "standard"},
		"experimental":         {objects: []runtime.Object{definition("experimental")}, nodes: 3, experimental: true, channel: "experimental"},
		"not experimental":     {objects: []runtime.Object{definition("standard")}, nodes: 2, experimental: true, err: "needs the experimental one"},
		"a definition of ours": {objects: []runtime.Object{definition("")}, nodes: 2, experimental: true, channel: "unknown"},
		"no such kind":         {absent: true, nodes: 2, err: "apply config/crd"},
		"one node":             {objects: []runtime.Object{definition("standard")}, nodes: 1, err: "needs two"},
		"policies of its users": {objects: []runtime.Object{definition("standard"), object(policies, suiteName, "default", nil)}, nodes: 2,
			err: "default among them"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				policies: suiteName + "List", definitions: "CustomResourceDefinitionList"}, c.objects...)
			if c.absent {
				client.PrependReactor("list", policies.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewNotFound(policies.GroupResource(), "")
				})
			}
			k, err := findKind(t.Context(), client, "https://host", c.nodes, c.experimental)
			switch {
			case err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)):
				t.Errorf("got %v, want an error with %q", err, c.err)
			case err == nil && (c.err != "" || k.channel != c.channel):
				t.Errorf("got channel %q, want %q or an error with %q", k.channel, c.channel, c.err)
			}
		})
	}
}
