package daemon

import (
	"strconv"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc/enforce/binding"
	"github.com/weave-npc/weave-npc/npc/source"
)

// The values of --bind-sources.
const (
	bindOn    = "on"
	bindAudit = "audit"
	bindOff   = "off"
)

const (
	// firstEtherType is the first number that is an EtherType: lower ones are lengths of frames.
	firstEtherType = 0x600
	// maxEtherTypes, maxPrefixes and maxRouting bound what the flags take.
	maxEtherTypes = 32
	maxPrefixes   = 32
	maxRouting    = 64
)

// registerBinding registers the flags about what pods may send at their ports.
func (o *options) registerBinding(f *pflag.FlagSet) {
	f.StringVar(&o.bindSources, "bind-sources", o.bindSources,
		"packets that pods send with a source that is not their address: on (dropped at the pod's port), "+
			"audit (reported) or off; needs nftables, also with the legacy backend")
	f.DurationVar(&o.bindAudit, "bind-audit", o.bindAudit,
		"on a node that had pods before their sources were bound: how long forged sources are reported and pass, from "+
			"the last one that is not plainly another pod's, before they are dropped")
	f.StringSliceVar(&o.bindPrefixes, "bind-prefixes", nil,
		"address ranges that pods may send from although the API does not list their addresses, if the kernel has the "+
			"address in the pod's network namespace: of SLAAC, or of second interfaces")
	f.StringSliceVar(&o.routingNamespaces, "routing-namespaces", nil,
		"namespaces whose pods route for others, and may send from any address")
	f.StringSliceVar(&o.allowEtherTypes, "allow-ethertypes", nil,
		"EtherTypes such as 0x8863 that pods on a bridge may send while a pod is isolated, besides those of IPv4, IPv6 "+
			"and ARP")
}

// bindingConfig checks these flags, and returns what they say.
func (o *options) bindingConfig() (c binding.Config, err error) {
	modes := map[string]ports.Mode{bindOn: ports.On, bindAudit: ports.Audit, bindOff: ports.Off}
	mode, ok := modes[o.bindSources]
	switch {
	case !ok:
		return c, errors.Errorf("--bind-sources: %q is none of on, audit and off", o.bindSources)
	case o.bindAudit < 0:
		return c, errors.Errorf("--bind-audit: %s is negative", o.bindAudit)
	case len(o.allowEtherTypes) > maxEtherTypes:
		return c, errors.Errorf("--allow-ethertypes: %d are more than %d", len(o.allowEtherTypes), maxEtherTypes)
	case len(o.bindPrefixes) > maxPrefixes:
		return c, errors.Errorf("--bind-prefixes: %d are more than %d", len(o.bindPrefixes), maxPrefixes)
	case len(o.routingNamespaces) > maxRouting:
		return c, errors.Errorf("--routing-namespaces: %d are more than %d", len(o.routingNamespaces), maxRouting)
	}
	c = binding.Config{Mode: mode, Audit: o.bindAudit, AllowVLAN: o.allowVLAN, Routing: o.routingNamespaces}
	for _, text := range o.allowEtherTypes {
		n, err := strconv.ParseUint(text, 0, 16)
		if err != nil || n < firstEtherType {
			return c, errors.Errorf("--allow-ethertypes: %q is no EtherType such as 0x8863", text)
		}
		c.Types = append(c.Types, uint16(n))
	}
	if c.Prefixes, err = parsePrefixes("--bind-prefixes", o.bindPrefixes, "2001:db8::/64"); err != nil {
		return c, err
	}
	for _, name := range o.routingNamespaces {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return c, errors.Errorf("--routing-namespaces: %q is no name of a namespace", name)
		}
	}
	return c, nil
}

// portsFirst has the ports of pods looked at before the sink knows that all objects are there: what the kernel has behind
// them and no object lists is closed then.
type portsFirst struct {
	source.Sink
	look func()
}

// SetSynced implements source.Sink.
func (p portsFirst) SetSynced() {
	p.look()
	p.Sink.SetSynced()
}

// withPorts returns the controller as a sink. Without a running guard, as in a dry run, it is just that.
func (d *daemon) withPorts() source.Sink {
	if d.options.dryRun {
		return d.controller
	}
	return portsFirst{d.controller, func() { d.guard.Look() }}
}
