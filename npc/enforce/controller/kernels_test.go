package controller_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// harness is a cluster, with what only the tests of this package need.
type harness struct{ *cluster.Cluster }

// newHarness returns a cluster without objects, with kernels in memory that the controller has read.
func newHarness(t *testing.T, configure ...func(*enforce.Config)) *harness {
	return &harness{cluster.New(t, configure...)}
}

// starter makes a harness with a new kernel.
type starter func(t *testing.T, configure ...func(*enforce.Config)) *harness

// onEveryKernel runs a test on kernels in memory, and with a syncer on a real kernel on both backends.
func onEveryKernel(t *testing.T, test func(t *testing.T, start starter)) {
	t.Run("paper", func(t *testing.T) { test(t, newHarness) })
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		test(t, func(t *testing.T, configure ...func(*enforce.Config)) *harness {
			return &harness{cluster.NewLive(t, b, configure...)}
		})
	})
}
