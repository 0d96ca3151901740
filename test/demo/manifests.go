package main

import (
	_ "embed" // for the policies
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
)

// The files that weave-npc reads.
const (
	namespacesFile = "namespaces.yaml"
	podsFile       = "pods.yaml"
	policiesFile   = "policies.yaml"
)

//go:embed policies.yaml
var policiesManifest string

// namespacesManifest says which namespaces there are. The one of monitoring has to be named only if it had labels.
func namespacesManifest() string {
	return `apiVersion: v1
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
}

// podManifest describes a pod as weave-npc needs to know it.
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

// write puts a file in place as a whole: nobody sees half of it.
func (m manifests) write(file, text string) error {
	draft := m.path("." + file)
	if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
		return errors.Wrapf(err, "writing %s", file)
	}
	return errors.Wrapf(os.Rename(draft, m.path(file)), "replacing %s", file)
}

// edit is a change of one line of a file.
type edit struct{ file, old, new string }

// edit replaces a file by one in which a line is another.
func (m manifests) edit(e edit) error {
	text, err := os.ReadFile(m.path(e.file))
	if err != nil {
		return errors.Wrapf(err, "reading %s", e.file)
	}
	if n := strings.Count(string(text), e.old); n != 1 {
		return errors.Errorf("%s has %q %d times, not once", e.file, e.old, n)
	}
	return m.write(e.file, strings.Replace(string(text), e.old, e.new, 1))
}
