package relayclient

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestS64_AListThatIsBrokenOff is made elsewhere in the end: replicas that take the request for a list, and then do not
// list, must not keep an agent from the API server. A relay does so while it cannot know that it has what the API
// server has.
func TestS64_AListThatIsBrokenOff(t *testing.T) {
	for _, test := range []struct {
		name     string
		set      func(*cluster)
		replicas int
		within   time.Duration
		api      int // lists of the API server
	}{
		{"one_replica_says_so", func(c *cluster) { c.replica(0).breaks = 1 }, 2, blockTimeout + time.Second, 0},
		{"all_replicas_say_so", func(c *cluster) { c.all(func(s *server) { s.breaks = 1 }) }, 2, 2*blockTimeout + time.Second, 1},
		{"after_some_objects", func(c *cluster) { c.all(func(s *server) { s.breaks = 4 }) }, 3, 3*blockTimeout + time.Second, 1},
		{"all_replicas_are_silent", func(c *cluster) { c.all(func(s *server) { s.mute = true }) }, 2, 2*beginTimeout + time.Second, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, test.replicas)
				test.set(c)
				a := c.follow()
				defer a.stop()
				a.expect(test.within)
				a.connected(true)
				if c.api.listed() != test.api {
					t.Errorf("%d lists of the API server, want %d", c.api.listed(), test.api)
				}
				c.all(func(s *server) { s.set(func(s *server) { s.breaks, s.mute = 0, false }) })
				c.harness.change("later", false)
				a.expect(2*stay + c.relay.agent.spread)
				if c.api.open() != 0 {
					t.Error("the API server is followed though the relay works")
				}
			})
		})
	}
}
