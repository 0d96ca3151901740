package daemon

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

const (
	// dnsPort is the port of resolvers that --dns-resolvers names without one.
	dnsPort = 53
	// maxResolvers and maxDomainGrace bound what the flags take.
	maxResolvers   = 32
	maxDomainGrace = 24 * time.Hour
)

// dnsOptions are the flags about domain names in policies.
type dnsOptions struct {
	queue         uint16
	resolvers     []string
	clusterDomain string
	grace         time.Duration
}

// register registers the flags.
func (o *dnsOptions) register(f *pflag.FlagSet) {
	f.StringSliceVar(&o.resolvers, "dns-resolvers", nil,
		"resolvers whose answers give the addresses of domainNames, besides the pods of kube-dns: addresses such as "+
			"169.254.20.10, or with ports 192.0.2.1:5353")
	f.StringVar(&o.clusterDomain, "cluster-domain", o.clusterDomain, "DNS domain of the cluster's own names")
	f.DurationVar(&o.grace, "domain-grace", o.grace,
		"how long an address of domainNames is accepted after the TTL of the answer that gave it")
	f.Uint16Var(&o.queue, "dns-queue", o.queue,
		"number of the NFQUEUE for answers with domainNames; no other program of this node may use it")
}

// config checks the flags and adds what they say.
func (o *dnsOptions) config(c *enforce.Config) error {
	switch {
	case len(o.resolvers) > maxResolvers:
		return errors.Errorf("--dns-resolvers: %d are more than %d", len(o.resolvers), maxResolvers)
	case o.grace < 0 || o.grace > maxDomainGrace:
		return errors.Errorf("--domain-grace: %s is not within 0 to %s", o.grace, maxDomainGrace)
	case len(validation.IsDNS1123Subdomain(o.clusterDomain)) > 0:
		return errors.Errorf("--cluster-domain: %q is no domain such as cluster.local", o.clusterDomain)
	}
	for _, text := range o.resolvers {
		r, err := netip.ParseAddrPort(text)
		if err != nil {
			var a netip.Addr
			a, err = netip.ParseAddr(strings.Trim(text, "[]"))
			r = netip.AddrPortFrom(a, dnsPort)
		}
		if err != nil || r.Addr().Zone() != "" || r.Port() == 0 {
			return errors.Errorf("--dns-resolvers: %q is no address such as 169.254.20.10 or 192.0.2.1:5353", text)
		}
		c.DNSResolvers = append(c.DNSResolvers, netip.AddrPortFrom(r.Addr().Unmap(), r.Port()))
	}
	c.DNSQueue = o.queue
	return nil
}

// learnerRetry is the pause before the learner of domain names is tried again that could not start.
const learnerRetry = 30 * time.Second

// learn learns the addresses of domain names until the context ends, from when a policy first asks for one.
func (d *daemon) learn(ctx context.Context) error {
	names, o := controller.NamesOf(d.controller), d.options.dns
	select {
	case <-ctx.Done():
		return nil
	case <-names.Asked():
	}
	c := domainnames.Config{Log: d.log, Names: names, Queue: o.queue, Group: rules.AnswersGroup(d.config.NFLogGroup),
		Grace: o.grace, Domain: o.clusterDomain}
	for _, f := range d.families {
		c.Alive[f] = ipset.Set{Name: naming.FixedSet(f, naming.DNSAlive), Type: ipset.HashNet, Family: naming.IPSet(f),
			Timeout: naming.AliveTimeout}
	}
	for ctx.Err() == nil {
		learner, err := domainnames.Open(c)
		if err == nil {
			return learner.Run(ctx)
		}
		names.Fail(err)
		d.log.Error("domainNames of policies match nothing", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(learnerRetry):
		}
	}
	return nil
}

// registerNames registers what is learned of domain names.
func registerNames(r prometheus.Registerer, names *domainnames.Names) {
	gauge(r, "weavenpc_domain_addresses",
		"Addresses that domainNames of policies accept at present, each once for a name of a list.",
		func() int { return names.Counts().Held })
	gauge(r, "weavenpc_domain_queued_answers",
		"Packets of resolvers that wait in the queue, read from the kernel each second.",
		func() uint64 { return names.Counts().Waiting })
	counter(r, "weavenpc_domain_answers_total", "Packets of resolvers that were held until their addresses were learned.",
		nil, func() uint64 { return names.Counts().Answers })
	counter(r, "weavenpc_domain_late_answers_total",
		"Packets of resolvers that waited for a set that was being made.", nil,
		func() uint64 { return names.Counts().Late })
	counter(r, "weavenpc_domain_learned_addresses_total",
		"Addresses of domain names that were learned, or learned again.", nil,
		func() uint64 { return names.Counts().Learned })
	const dropped = "Packets of resolvers that were dropped, so that pods ask again: refused by a set or unreadable, or " +
		"lost because too many waited."
	counter(r, "weavenpc_domain_dropped_answers_total", dropped, prometheus.Labels{"reason": "refused"},
		func() uint64 { return names.Counts().Refused })
	counter(r, "weavenpc_domain_dropped_answers_total", dropped, prometheus.Labels{"reason": "lost"},
		func() uint64 { return names.Counts().Lost })
	counter(r, "weavenpc_domain_evicted_addresses_total",
		"Addresses of domain names that were forgotten before their time, because there were too many.", nil,
		func() uint64 { return names.Counts().Evicted })
	counter(r, "weavenpc_domain_reset_streams_total",
		"TCP connections to resolvers that were reset because they began before weave-npc read them.", nil,
		func() uint64 { return names.Counts().Resets })
}
