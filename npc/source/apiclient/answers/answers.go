// Package answers checks what an API server answers before it is decoded, and leaves out what weave-npc does not read.
//
//	config.Wrap(answers.Checked) // or answers.Reduced
//
// A decoder takes an answer null, a list of another kind or one without items for an empty list. Here it is an error,
// which is retried as a broken connection is. Reduced keeps of each object in a list what its facts depend on, while the
// list is received: it is never in memory as a whole. Events of a watch come one by one, and are for package source to
// check.
package answers

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// checker is a transport that checks the answers of another one.
type checker struct {
	http.RoundTripper
	reduces bool
}

// Checked returns a transport that turns answers that are not what was asked for into errors.
func Checked(t http.RoundTripper) http.RoundTripper { return checker{t, false} }

// Reduced returns a transport that does so, and reduces the objects in lists of pods, namespaces, Nodes and
// NetworkPolicies.
func Reduced(t http.RoundTripper) http.RoundTripper { return checker{t, true} }

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery.
func (c checker) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c checker) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(request)
	if err != nil || request.Method != http.MethodGet || response.StatusCode/100 != 2 ||
		request.URL.Query().Get("watch") != "" {
		return response, err
	}
	var read func(io.Reader, string) (io.Reader, error)
	switch form, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); {
	case strings.HasPrefix(form, "text/"): // no decoder takes it
		return response, nil
	case form == runtime.ContentTypeJSON:
		read = readJSON
	case form == runtime.ContentTypeProtobuf:
		read = c.readProtobuf
	default: // decoders guess
		read = func(io.Reader, string) (io.Reader, error) { return nil, errors.Errorf("is of content type %q", form) }
	}
	defer func() { _ = response.Body.Close() }() // it was read
	body, err := read(response.Body, request.URL.Path)
	if err != nil {
		return nil, errors.Wrapf(err, "the answer to GET %s", request.URL.Path)
	}
	response.Body, response.ContentLength = io.NopCloser(body), -1
	response.Header.Del("Content-Length")
	return response, nil
}

// readJSON reads an answer in JSON and checks it.
func readJSON(in io.Reader, path string) (io.Reader, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var head *struct {
		Kind     string          `json:"kind"`
		Metadata metav1.ListMeta `json:"metadata"`
		Items    []struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, errors.Wrap(err, "is no object")
	}
	if head == nil {
		return nil, errors.New("is null")
	}
	list, err := checkKind(head.Kind, path)
	if err != nil || !list {
		return bytes.NewReader(text), err
	}
	if head.Items == nil {
		return nil, errors.Errorf("is a %s without items", head.Kind)
	}
	for _, item := range head.Items {
		if item.Kind != "" && item.Kind+listSuffix != head.Kind || item.Metadata.Name == "" {
			return nil, errors.Errorf("is a %s with an item %q of kind %q", head.Kind, item.Metadata.Name, item.Kind)
		}
	}
	return bytes.NewReader(text), checkVersion(head.Kind, &head.Metadata)
}

const listSuffix = "List"

// checkKind returns an error if an object of a kind is no answer for a path, and whether it is a list of objects. What
// is no resource, such as /version, has no kind.
func checkKind(kind, path string) (list bool, err error) {
	if !strings.Contains(path, "/api/") && !strings.Contains(path, "/apis/") {
		return false, nil
	}
	parts := strings.Split(path, "/")
	part := func(fromEnd int) string { return parts[max(0, len(parts)-fromEnd)] }
	object, list := strings.CutSuffix(kind, listSuffix)
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: object})
	var right bool
	switch {
	case kind == "APIGroup":
		right = part(2) == "apis"
	case kind == "APIResourceList":
		right, list = part(2) == "api" || part(3) == "apis", false
	case list:
		right = part(1) == plural.Resource
	default:
		right = kind != "" && part(2) == plural.Resource
	}
	if !right {
		return false, errors.Errorf("is of kind %q", kind)
	}
	return list, nil
}

func checkVersion(kind string, m *metav1.ListMeta) error {
	if m.ResourceVersion == "" {
		return errors.Errorf("is a %s without a resourceVersion", kind)
	}
	return nil
}

// readProtobuf reads an answer in Kubernetes' protobuf format and checks it.
func (c checker) readProtobuf(in io.Reader, path string) (io.Reader, error) {
	a := answer{in: bufio.NewReader(in), path: path, reduces: c.reduces}
	if err := a.read(); err != nil {
		return nil, err
	}
	return a.written(), nil
}
