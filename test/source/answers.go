package sourcetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Answers starts a server that answers each path with a text in JSON, a path with an empty text with status 403, and
// all others with 404. It returns a client of it with its configuration.
func Answers(t *testing.T, texts map[string]string) (kubernetes.Interface, *rest.Config) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, known := texts[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !known:
			w.WriteHeader(http.StatusNotFound)
		case text == "":
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, config
}

// Group returns the answers of an API server that has resources of the group policy.networking.k8s.io: version -> their
// names, as JSON strings with commas between.
func Group(versions map[string]string) map[string]string {
	const group = "policy.networking.k8s.io"
	answers, all := map[string]string{}, ""
	for version, names := range versions {
		if all != "" {
			all += ","
		}
		all += fmt.Sprintf(`{"groupVersion":"%s/%s","version":"%s"}`, group, version, version)
		answers["/apis/"+group+"/"+version] = names
		if names != "" {
			answers["/apis/"+group+"/"+version] = fmt.Sprintf(
				`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":[%s]}`,
				group, version, names)
		}
	}
	answers["/apis/"+group] = fmt.Sprintf(
		`{"kind":"APIGroup","apiVersion":"v1","name":"%s","versions":[%s]}`, group, all)
	answers["/apis"] = fmt.Sprintf(
		`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps"},{"name":"%s"}]}`, group)
	return answers
}
