package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/advice"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/services"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// network reads what leads to pods, if one of the ends is not the name of a pod: who asks about pods needs no right to read Services.
func (a *asked) network(ctx context.Context, k *known, stderr io.Writer) error {
	pods := !slices.ContainsFunc([]string{a.from, a.to}, func(end string) bool {
		_, err := netip.ParseAddr(end)
		return err == nil || services.IsName(end)
	})
	if pods {
		return nil
	}
	n, err := a.cluster.network(ctx)
	if err != nil {
		return err
	}
	if len(n.Unread) > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: not every address can be told: %s\n", strings.Join(n.Unread, "; "))
	}
	k.network = services.New(k.World, n)
	return nil
}

// network reads what leads to pods, from where the objects are.
func (c *cluster) network(ctx context.Context) (snapshot.Network, error) {
	if c.manifests != "" {
		return snapshot.LoadNetwork(c.manifests)
	}
	client, err := apiclient.ForUser(c.kubeconfig, c.context, version())
	if err != nil {
		return snapshot.Network{}, err
	}
	return snapshot.ListNetwork(ctx, client), nil
}

// question is what is asked, once the ends are known.
type question struct {
	// target is the Service that the connection goes to; nil if it goes to none.
	target *services.Target
	// flows are those to each endpoint, in all families that both ends have.
	flows [][]explain.Flow
	// doubts are what speaks against taking an address for what it seems to be.
	doubts []string
}

// question finds the ends.
func (a *asked) question(k known) (q question, err error) {
	if a.from == "" || a.to == "" {
		missing := map[bool]string{true: "--from", false: "--to"}[a.from == ""]
		return q, errors.Errorf("%s is missing: give a pod as NAMESPACE/NAME, or an address", missing)
	}
	if services.IsName(a.from) {
		return q, errors.Errorf("--from: nothing comes from a Service; give one of its pods")
	}
	from, err := k.Find(a.from)
	if err != nil {
		return q, errors.Wrap(err, "--from")
	}
	if k.network != nil {
		if name := k.network.Name(from[0].Addr); name != "" {
			return q, errors.Errorf("--from: %s is %s, from which nothing comes; give one of its pods", a.from, name)
		}
		if q.target, err = k.network.Find(a.to, a.port); err != nil {
			return q, errors.Wrap(err, "--to")
		}
	}
	if q.target != nil {
		q.flows = q.target.Flows(from)
	} else if q.flows, err = a.plain(k, from); err != nil {
		return q, err
	}
	if len(q.flows) == 0 {
		return q, errors.Errorf("%s and %s have no addresses of the same family", a.from, a.to)
	}
	for flag, end := range map[string]string{"--from": a.from, "--to": a.to} {
		if addr, err := netip.ParseAddr(end); err == nil {
			if doubt := k.network.Doubt(addr.Unmap()); doubt != "" {
				q.doubts = append(q.doubts, flag+": "+doubt)
			}
		}
	}
	slices.Sort(q.doubts)
	return q, nil
}

// plain returns the flows to a pod or an address.
func (a *asked) plain(k known, from []explain.End) ([][]explain.Flow, error) {
	to, err := k.Find(a.to)
	if err != nil {
		return nil, errors.Wrap(err, "--to")
	}
	service, err := k.Service(a.port, to)
	if err != nil {
		return nil, errors.Wrap(err, "--port")
	}
	if flows := explain.Flows(from, to, service); len(flows) > 0 {
		return [][]explain.Flow{flows}, nil
	}
	return nil, nil
}

// mostAdvised is how many endpoints of a Service are given advice of their own.
const mostAdvised = 3

// answer explains all flows.
func (k known) answer(q question) (explanation, error) {
	x := explanation{Allowed: true, Service: q.target, Warnings: q.doubts}
	advised, world := 0, k.World
	for _, flows := range q.flows {
		var verdicts []explain.Verdict
		for _, f := range flows {
			v := k.Explain(f)
			verdicts = append(verdicts, v)
			x.Allowed = x.Allowed && v.Allowed
		}
		x.Verdicts, x.groups = append(x.Verdicts, verdicts...), append(x.groups, verdicts)
		if advised == mostAdvised || len(q.doubts) > 0 {
			continue // who mistyped an address is in no need of a policy for it
		}
		// What was advised for an endpoint may be enough for the next one.
		changes, err := advice.Asked{World: world, Flows: flows, Controllers: controllers(k.objects)}.Nearest()
		if err != nil {
			return x, err
		}
		if len(changes) > 0 {
			advised++
			world = changes[0].In(world)
			if len(q.flows) > 1 {
				for i := range changes {
					changes[i].For = flows[0].To.String()
				}
			}
			x.Nearest = append(x.Nearest, changes...)
		}
	}
	return x, nil
}
