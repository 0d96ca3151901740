package daemon

import (
	"net/netip"
	"slices"
	"testing"

	"k8s.io/client-go/tools/record"

	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/enforce"
)

func TestEvents(t *testing.T) {
	recorder := record.NewFakeRecorder(8)
	r := &eventReporter{recorder: recorder, node: "node1"}
	web, api := ipowner.Ref{Namespace: "shop", Name: "web"}, ipowner.Ref{Namespace: "shop", Name: "api"}
	addr := netip.MustParseAddr("10.32.1.2")
	two, one := ipowner.Conflict{Addr: addr, Pod: web, Other: api}, ipowner.Conflict{Addr: addr, Pod: web}
	r.Policy(enforce.InvalidPolicy{Namespace: "shop", Name: "p", UID: "p", Reason: "spec.ingress[0]: bad port"})
	r.Policy(enforce.InvalidPolicy{Namespace: "shop", Name: "p", UID: "p", Reason: "too many sets", Refused: true})
	r.Policy(enforce.InvalidPolicy{Name: "p", UID: "p", Reason: "spec.egress[0]: to[0]: unknown", Cluster: true})
	r.Policy(enforce.InvalidPolicy{Name: "p", UID: "p", Reason: "spec.tier: unknown", Cluster: true, Inert: true})
	r.Policy(enforce.InvalidPolicy{Name: "p", UID: "p", Reason: "too many sets", Cluster: true, Refused: true})
	r.Policy(enforce.InvalidPolicy{Name: "domain names", Reason: "no string match", Cluster: true, Refused: true})
	r.Conflict(two)
	r.Conflict(one)
	close(recorder.Events)
	var got []string
	for e := range recorder.Events {
		got = append(got, e)
	}
	want := []string{
		"Warning Invalid allows nothing until it is corrected: spec.ingress[0]: bad port",
		"Warning Refused the kernel of node node1 does not take all that it needs, which is left out: too many sets",
		"Warning Invalid rules that are not understood fail closed until they are corrected: spec.egress[0]: to[0]: unknown",
		"Warning Invalid decides nothing until it is corrected: spec.tier: unknown",
		"Warning Refused the kernel of node node1 does not take all that it needs, which fails closed: too many sets",
		"Warning AddressConflict node node1: " + two.Message(), // on both pods
		"Warning AddressConflict node node1: " + two.Message(),
		"Warning AddressConflict node node1: " + one.Message(),
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestNoEventsWithoutServer checks that a reporter without a client ignores everything.
func TestNoEventsWithoutServer(t *testing.T) {
	r := newEventReporter(t.Context(), nil, "node1")
	r.Policy(enforce.InvalidPolicy{})
	r.Conflict(ipowner.Conflict{Pod: ipowner.Ref{Name: "web"}})
}
