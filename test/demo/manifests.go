package main

import (
	_ "embed" // for the policies
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// The files that weave-npc reads.
const (
	namespacesFile = "namespaces.yaml"
	podsFile       = "pods.yaml"
	policiesFile   = "policies.yaml"
	tiersFile      = "tiers.yaml"
)

//go:embed policies.yaml
var policiesManifest string

const namespacesManifest = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {scrape: "yes"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: Namespace
metadata: {name: dev}
`

// document returns that of the documents in a manifest that has some words.
func document(manifest, words string) string {
	documents := strings.Split(manifest, "---\n")
	return documents[slices.IndexFunc(documents, func(d string) bool { return strings.Contains(d, words) })]
}

// podManifest describes a pod with the fields that weave-npc needs.
func podManifest(p pod, addrs []netip.Addr) string {
	var ports, ips []string
	for _, port := range p.ports {
		ports = append(ports, fmt.Sprintf("    - {name: %s, containerPort: %d}\n", port.name, port.number))
	}
	for _, addr := range addrs {
		ips = append(ips, fmt.Sprintf("{ip: %q}", addr))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: %s, labels: {app: %s}}
spec:
  nodeName: %s
  containers:
  - name: %s
    ports:
%sstatus:
  podIPs: [%s]
`, p.namespace, p.name, p.name, p.node, p.name, strings.Join(ports, ""), strings.Join(ips, ", "))
}

// manifests is the directory that weave-npc reads.
type manifests string

func (m manifests) path(file string) string { return filepath.Join(string(m), file) }

// write replaces a file atomically: no reader sees half of it.
func (m manifests) write(file, text string) error {
	draft := m.path("." + file) // hidden files are no manifests
	if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
		return errors.Wrapf(err, "writing %s", file)
	}
	return errors.Wrapf(os.Rename(draft, m.path(file)), "replacing %s", file)
}

// edit is a change of a few words in a file.
type edit struct{ file, old, new string }

// apply replaces the file by one that has the new words.
func (m manifests) apply(e edit) error {
	text, err := os.ReadFile(m.path(e.file))
	if err != nil {
		return errors.Wrapf(err, "reading %s", e.file)
	}
	if n := strings.Count(string(text), e.old); n != 1 {
		return errors.Errorf("%s has %q %d times, not once", e.file, e.old, n)
	}
	return m.write(e.file, strings.Replace(string(text), e.old, e.new, 1))
}

// lines returns the line of the file that has the old words, and the one that will have the new ones.
func (m manifests) lines(e edit) (old, edited string, err error) {
	text, err := os.ReadFile(m.path(e.file))
	if err != nil {
		return "", "", errors.Wrapf(err, "reading %s", e.file)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, e.old) {
			old = strings.TrimRight(line, "\n")
			return old, strings.Replace(old, e.old, e.new, 1), nil
		}
	}
	return "", "", errors.Errorf("%s has no %q", e.file, e.old)
}

// version changes whenever a manifest does.
func (m manifests) version() (string, error) {
	files, err := filepath.Glob(m.path("[^.]*.yaml"))
	if err != nil {
		return "", errors.Wrap(err, "listing the manifests")
	}
	var b strings.Builder
	for _, file := range files {
		info, err := os.Stat(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // an editor is just replacing it
		}
		if err != nil {
			return "", errors.Wrap(err, "looking at the manifests")
		}
		fmt.Fprintln(&b, file, info.Size(), info.ModTime().UnixNano())
	}
	return b.String(), nil
}
