package main

import (
	"context"
	"regexp"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/network-policy-api/conformance"
)

// baseManifests is the suite's file of the pods.
const baseManifests = "base/manifests.yaml"

// podImage returns the image that the suite's pods run, if it is replaced by another or, without one, is the suite's.
func podImage(replacement string) string {
	if replacement != "" {
		return replacement
	}
	content, err := conformance.Manifests.ReadFile(baseManifests)
	if found := regexp.MustCompile(`image: (\S+)`).FindSubmatch(content); err == nil && found != nil {
		return string(found[1])
	}
	return "an unknown image"
}

// baseClient changes the pods of the suite on their way to the API server. The suite has no option for that short of
// manifests of one's own for everything.
type baseClient struct {
	client.Client
	// image replaces the image of all containers, unless it is empty.
	image string
	// sctp says whether to keep the containers that serve SCTP, which end at once on a kernel without it.
	sctp bool
}

// Create creates an object.
func (c baseClient) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	if err := c.adapt(o); err != nil {
		return err
	}
	return c.Client.Create(ctx, o, options...)
}

// Update updates an object.
func (c baseClient) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	if err := c.adapt(o); err != nil {
		return err
	}
	return c.Client.Update(ctx, o, options...)
}

// adapt changes an object, if it is a set of pods.
func (c baseClient) adapt(o client.Object) error {
	set, isRaw := o.(*unstructured.Unstructured)
	if !isRaw || set.GetKind() != "StatefulSet" {
		return nil
	}
	place := []string{"spec", "template", "spec", "containers"}
	containers, found, err := unstructured.NestedSlice(set.Object, place...)
	if err != nil || !found {
		return errors.Errorf("the suite's %s has no list of containers (%v)", set.GetName(), err)
	}
	var kept []any
	for _, each := range containers {
		container, isMap := each.(map[string]any)
		if !isMap {
			return errors.Errorf("a container of the suite's %s is a %T", set.GetName(), each)
		}
		if !c.sctp && servesSCTP(container) {
			continue
		}
		if c.image != "" {
			replaceImage(container, c.image)
		}
		kept = append(kept, container)
	}
	err = unstructured.SetNestedSlice(set.Object, kept, place...)
	return errors.Wrapf(err, "changing the containers of %s", set.GetName())
}

// servesSCTP reports whether a container is configured to serve SCTP.
func servesSCTP(container map[string]any) bool {
	env, _, _ := unstructured.NestedSlice(container, "env")
	for _, each := range env {
		if variable, isMap := each.(map[string]any); isMap {
			if name, _ := variable["name"].(string); strings.HasPrefix(name, "SERVE_SCTP_PORT_") {
				return true
			}
		}
	}
	return false
}

// replaceImage sets a container's image. All that is expected of it is that /agnhost is in it: no shell, and no command
// of its own.
func replaceImage(container map[string]any, image string) {
	container["image"] = image
	command, _, _ := unstructured.NestedStringSlice(container, "command")
	switch {
	case len(command) == 0:
		container["command"] = []any{"/agnhost", "pause"}
	case len(command) == 3 && command[1] == "-c":
		var words []any
		for _, word := range strings.Fields(command[2]) {
			words = append(words, word)
		}
		container["command"] = words
	}
}
