//go:build tools

// Package controlplane pins the kube-apiserver and the etcd that end-to-end tests run against.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
