package syncer

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

const (
	// programTimeout bounds one run of iptables-save or iptables-restore, the wait for the lock included. The wait
	// between tries is added, so that a program that is only slow gets more time with each try.
	programTimeout = 10 * time.Second
	// Retries of what fails wait between these, doubling.
	retryFirst = 100 * time.Millisecond
	retryLast  = 30 * time.Second
	// Rules and sets that the kernel rejected are left out for between these, doubling.
	rejectedFirst = time.Minute
	rejectedLast  = time.Hour
)

// setStore is what a kernel uses of ipset.Conn.
type setStore interface {
	Apply([]ipset.Op) error
	Headers(prefix string) ([]ipset.Header, error)
	List(prefix string) ([]ipset.Listing, error)
	ListNamed(names []string) ([]ipset.Listing, error)
	Close() error
}

// flowDeleter is what a kernel uses of conntrack.Worker.
type flowDeleter interface {
	Ask([]conntrack.Request)
	Done() []netip.Addr
	Trouble(time.Time) (err error, stuck bool)
	Close()
}

// kernel is one family's sets and chains, and what is known of them. It is used by one goroutine at a time.
type kernel struct {
	family npc.Family
	sets   setStore
	filter *iptables.Table
	flows  flowDeleter
	// connections are those that flows deletes.
	connections *conntrack.Table
	doing       *progressTracker
	// lock is all kernels' together.
	lock *lock

	// setsKnown and chainsKnown report whether the controller knows which sets and chains there are.
	setsKnown, chainsKnown bool
	// print is what the filter table looked like after the last transaction; zero if that is not known.
	print iptables.Fingerprint
	// unsynced reports that chains were written that were not read since: how their rules look when printed is not
	// known.
	unsynced bool
	// written counts the writes of chains, and the deletions of sets.
	written int
	// nftOnly reports whether the table has rules that iptables cannot show, as last logged.
	nftOnly bool

	probe probe
	retry backoff
	// rejections space out the tries at what the kernel rejected.
	rejections backoff
	// postponed are the namespaces whose rules could not be written, while those of others could be.
	postponed postponements
	// errs are the errors of the sync under way.
	errs []error
	// failing is why the kernel is not up to date, and failingSince since when; empty if it is. failingLogged is when
	// that was last logged.
	failing                     string
	failingSince, failingLogged time.Time
	// flowsFailing is why connections cannot be deleted, as last logged; empty if they can.
	flowsFailing string
}

// openKernel opens the kernel of the current network namespace for one family. The function changed is called when
// connections were deleted.
func openKernel(f npc.Family, b iptables.Backend, doing *progressTracker, l *lock, isLocal func(netip.Addr) bool,
	changed func()) (*kernel, error) {
	filter, err := iptables.New(naming.IPTables(f), b)
	if err != nil {
		return nil, err
	}
	sets, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	family := uint8(unix.AF_INET)
	if f == npc.IPv6 {
		family = unix.AF_INET6
	}
	connections, err := conntrack.Open(family)
	if err != nil {
		return nil, err
	}
	return &kernel{family: f, doing: doing, lock: l, postponed: postponements{}, sets: sets, filter: filter,
		connections: connections,
		flows:       conntrack.NewWorker(connections.Delete, isLocal, changed),
		retry:       backoff{first: retryFirst, last: retryLast},
		rejections:  backoff{first: rejectedFirst, last: rejectedLast}}, nil
}

// close closes the sockets. What is in the kernel stays.
func (k *kernel) close() {
	k.flows.Close()
	k.connections.Close()
	// There is nothing to do about a socket that does not close, and nothing that it would harm.
	_ = k.sets.Close()
}

// known returns how much of the family may be planned.
func (k *kernel) known() dataplane.Known {
	switch {
	case !k.setsKnown:
		return dataplane.NothingKnown
	case !k.chainsKnown, k.lock.held():
		return dataplane.SetsKnown
	}
	return dataplane.AllKnown
}

// steady reports whether the kernel is expected to hold what the transactions left.
func (k *kernel) steady() bool { return k.known() == dataplane.AllKnown && k.failing == "" }

// timeout returns how long one run of a program may take.
func (k *kernel) timeout() time.Duration { return programTimeout + k.retry.wait }

// loadSets gives the controller the family's sets unless it knows them.
func (k *kernel) loadSets(p controller.Planner) error {
	if k.setsKnown {
		return nil
	}
	listings, err := k.sets.List(naming.SetPrefix)
	if err != nil {
		return errors.Wrap(err, "reading the sets")
	}
	p.LoadSets(k.family, listings)
	k.setsKnown = true
	return nil
}

// readChains reads weave-npc's chains, and those that the original weave-npc may have left.
func (k *kernel) readChains(ctx context.Context) (iptables.Seen, error) {
	defer k.doing.Begin(k.family.String(), "reading the chains")()
	ctx, cancel := context.WithTimeout(ctx, k.timeout())
	defer cancel()
	print, err := k.filter.Fingerprint()
	if err != nil {
		return iptables.Seen{}, err
	}
	seen, err := k.filter.Read(ctx, naming.ChainPrefix)
	if err != nil {
		return iptables.Seen{}, err
	}
	k.print = print
	return seen, nil
}

// works reports whether the programs of iptables work, once that is known. They are assumed to work until something
// fails. After a failure they are tried first, concurrently with everything else: where they hang, sets are kept up to
// date all the same. The function ended is called when such a probe ends.
func (k *kernel) works(ctx context.Context, ended func()) (known bool, err error) {
	if k.probe.running() {
		return k.probe.wait(0)
	}
	if k.retry.wait == 0 {
		return true, nil
	}
	k.probe.start(ctx, k.timeout(), k.try, ended)
	return k.probe.wait(probeTimeout)
}

// try runs the programs of iptables as a sync does, without a change.
func (k *kernel) try(ctx context.Context) error {
	if _, err := k.filter.Read(ctx, naming.ChainPrefix); err != nil {
		return err
	}
	return errors.Wrap(k.filter.Try(ctx), "trying to write")
}

// noteNFTOnly logs when the filter table gets or loses rules that iptables cannot show.
func (k *kernel) noteNFTOnly(is bool, log *slog.Logger) {
	switch {
	case is && !k.nftOnly:
		log.Warn("the filter table has rules that iptables cannot show, written with nft: it is read chain by chain",
			"family", k.family)
	case !is && k.nftOnly:
		log.Info("the filter table has no rules any more that iptables cannot show", "family", k.family)
	}
	k.nftOnly = is
}

// kernels are those of all families.
type kernels []*kernel

// knowledge and transactions are those of each family.
type (
	knowledge    = [len(npc.Families)]dataplane.Known
	transactions = [len(npc.Families)]dataplane.Transaction
)

// known returns how much of each family may be planned.
func (ks kernels) known() (e knowledge) {
	for _, k := range ks {
		e[k.family] = k.known()
	}
	return e
}

// errors returns the errors of the sync under way.
func (ks kernels) errors() (errs []error) {
	for _, k := range ks {
		errs = append(errs, k.errs...)
	}
	return errs
}
