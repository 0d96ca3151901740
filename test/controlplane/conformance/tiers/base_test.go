package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/network-policy-api/conformance"
)

// recordingClient records what is made.
type recordingClient struct {
	client.Client
	made []*unstructured.Unstructured
}

func (c *recordingClient) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	c.made = append(c.made, o.(*unstructured.Unstructured))
	return nil
}

func (c *recordingClient) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return c.Create(ctx, o)
}

// TestBase checks how the pods of the real suite are changed. These are five sets of pods. The last set is in the
// nodes' network.
func TestBase(t *testing.T) {
	for name, c := range map[string]struct {
		image      string
		sctp       bool
		containers int // of a set
		want       []string
		never      string
	}{
		"as the suite has it":    {"", true, 7, []string{"/bin/bash -c /agnhost porter", ""}, "other"},
		"without SCTP":           {"", false, 5, []string{"/bin/bash -c /agnhost serve-hostname --tcp --http=false --port 80", ""}, "porter"},
		"with an image":          {"other", true, 7, []string{"/agnhost porter", "/agnhost pause"}, "/bin/bash"},
		"with one, without SCTP": {"other", false, 5, []string{"/agnhost pause"}, "porter"},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := &recordingClient{}
			create(t, baseClient{Client: recorded, image: c.image, sctp: c.sctp})
			var commands []string
			sets := 0
			for _, o := range recorded.made {
				if o.GetKind() != "StatefulSet" {
					continue
				}
				sets++
				containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
				if err != nil || len(containers) != c.containers {
					t.Errorf("%s has %d containers (%v), want %d", o.GetName(), len(containers), err, c.containers)
				}
				for _, each := range containers {
					words, _, _ := unstructured.NestedStringSlice(each.(map[string]any), "command")
					commands = append(commands, strings.Join(words, " "))
					if image := each.(map[string]any)["image"]; image != podImage(c.image) {
						t.Errorf("a container of %s runs %s", o.GetName(), image)
					}
				}
			}
			if sets != 5 {
				t.Errorf("%d sets of pods, want 5", sets)
			}
			for _, want := range c.want {
				if !slices.Contains(commands, want) {
					t.Errorf("no container runs %q", want)
				}
			}
			if strings.Contains(strings.Join(commands, "\n"), c.never) {
				t.Errorf("a container runs %s", c.never)
			}
		})
	}
}

// create makes, or updates every second time, what the suite starts with.
func create(t *testing.T, c client.Client) {
	t.Helper()
	source, err := conformance.Manifests.ReadFile(baseManifests)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	err = template.Must(template.New("").Parse(string(source))).Execute(&text, map[string][]int{"HostNetworkPorts": make([]int, 8)})
	if err != nil {
		t.Fatal(err)
	}
	for i, document := range strings.Split(text.String(), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			err = c.Create(t.Context(), o)
		} else {
			err = c.Update(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
