//go:build tools

// Package servers names the programs that tests of the Helm chart run: `make kubernetes` builds them.
package servers

import (
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
