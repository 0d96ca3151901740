package npc

import (
	"context"
	stderrors "errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/progress"
)

const (
	// programTimeout bounds one run of iptables-save or iptables-restore, the wait for the lock included. It grows with the
	// wait between tries, for one that is only slow.
	programTimeout = 10 * time.Second
	// Tries at what fails wait between these, doubling.
	retryFirst = 100 * time.Millisecond
	retryLast  = 30 * time.Second
	// Rules and sets that the kernel refused are left out for between these, doubling.
	refusedFirst = time.Minute
	refusedLast  = time.Hour
)

// scratchChain is where rules are tried that the kernel may refuse.
const scratchChain = naming.ChainPrefix + "-TRY"

// maxRestore is how many rules one iptables-restore writes, unless one namespace has more.
const maxRestore = 2000

// setKeeper is what we need of ipset.Conn.
type setKeeper interface {
	Apply([]ipset.Op) error
	Headers(prefix string) ([]ipset.Header, error)
	List(prefix string) ([]ipset.Listing, error)
	Close() error
}

// forgetter is what we need of conntrack.Worker.
type forgetter interface {
	Ask([]conntrack.Request)
	Done() []netip.Addr
	Trouble(time.Time) (err error, stuck bool)
	Close()
}

// kernel is one family's sets and chains. It is used by one goroutine at a time.
type kernel struct {
	family Family
	sets   setKeeper
	filter *iptables.Table
	flows  forgetter
	doing  *progress.Tracker
	// connections are those that flows deletes.
	connections *conntrack.Table
	// unforgetting is why connections cannot be deleted, as the log said it; empty if they can.
	unforgetting string
	// setsKnown and chainsKnown say that the model knows what is there.
	setsKnown, chainsKnown bool
	// print is what the filter table looked like after our last transaction; zero if that is not known.
	print iptables.Fingerprint
	// unread says that we wrote chains that were not read since: what their rules look like when printed is not known.
	unread bool
	// native says that the log said that the table has rules which iptables cannot show.
	native bool

	// failing says why the kernel does not hold what is wanted, since when; empty if it does.
	failing      string
	failingSince time.Time
	// failingSaid is when the log last said so.
	failingSaid time.Time
	retry       backoff
	// postponed are the namespaces whose rules could not be written, while those of others could be.
	postponed map[string]*postponement
	// trial gives the result of a trial under way; nil if there is none.
	trial chan error
	// errs are what went wrong in the sync under way.
	errs []error
	// refusals space out the tries at what the kernel refused.
	refusals backoff
}

// openKernel opens the kernel of the network namespace that we run in, once per family.
func openKernel(f Family, b iptables.Backend, doing *progress.Tracker, isLocal func(netip.Addr) bool, changed func()) (*kernel, error) {
	filter, err := iptables.New(f.IPTables(), b)
	if err != nil {
		return nil, err
	}
	sets, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	family := uint8(unix.AF_INET)
	if f == IPv6 {
		family = unix.AF_INET6
	}
	connections, err := conntrack.Open(family)
	if err != nil {
		return nil, err
	}
	return &kernel{family: f, doing: doing, postponed: map[string]*postponement{}, sets: sets, filter: filter, connections: connections,
		flows: conntrack.NewWorker(connections.Delete, isLocal, changed),
		retry: backoff{first: retryFirst, last: retryLast}, refusals: backoff{first: refusedFirst, last: refusedLast}}, nil
}

// close closes the sockets. What is in the kernel stays.
func (k *kernel) close() {
	k.flows.Close()
	k.connections.Close()
	// There is nothing to do about a socket that does not close, and nothing that it would harm.
	_ = k.sets.Close()
}

// extent is how much of the family may be planned.
func (k *kernel) extent() Extent {
	switch {
	case !k.setsKnown:
		return Nothing
	case !k.chainsKnown:
		return SetsOnly
	}
	return Everything
}

// steady says whether the kernel is expected to hold what our transactions left.
func (k *kernel) steady() bool { return k.extent() == Everything && k.failing == "" }

// timeout bounds a run of a program.
func (k *kernel) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, programTimeout+k.retry.wait)
}

// readChains reads the chains of ours, and what may be of the original weave-npc.
func (k *kernel) readChains(ctx context.Context) (iptables.Seen, error) {
	defer k.doing.Begin(k.family.String(), "reading the chains")()
	ctx, cancel := k.timeout(ctx)
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

// failure is what went wrong with a transaction.
type failure struct {
	// sets and chains are to be reported.
	sets, chains []error
	// inUse are sets that could not be destroyed yet, which is no error.
	inUse []ipset.Set
	// unforgotten are what was not asked for, because what the addresses had for their former pods may be left.
	unforgotten []conntrack.Request
	// unadmitted are members that were not added because the rules were not written.
	unadmitted []ipset.Op
	// unremoved says that members were left in sets, although the plan took them for gone.
	unremoved bool
	// refusedSets are names of sets that the kernel does not take -> why; refused are such rules.
	refusedSets map[string]string
	refused     []iptables.Refusal
	// namespaces are those whose rules were not written, while those of others could be -> why.
	namespaces map[string]error
}

// apply carries out a transaction, step by step. A step that fails does not keep the next from being
// tried, unless that would take away what the rules still need.
func (k *kernel) apply(ctx context.Context, tx Transaction) failure {
	f := failure{refusedSets: map[string]string{}}
	f.apply(k, "revoking", tx.Revoke)
	if len(f.sets) == 0 {
		k.flows.Ask(tx.Forget)
	} else {
		f.unforgotten = tx.Forget
	}
	f.apply(k, "growing", tx.Grow)
	admit, leave, shrink := tx.Admit, tx.Leave, tx.Shrink
	tx.Rules = f.without(tx.Rules)
	if written := k.write(ctx, tx, &f); !written {
		// What the old rules allow stays closed to those that are not there yet.
		f.unadmitted, admit = admit, nil
		// What the old rules allow by sets that are not wanted any more stays, and who is led to them; members that are not wanted go.
		shrink = slices.DeleteFunc(slices.Clone(shrink), func(op ipset.Op) bool { return op.Kind != ipset.Delete })
		f.unremoved = len(leave) > 0 || len(shrink) < len(tx.Shrink)
		leave = nil
	}
	f.apply(k, "admitting to", admit)
	f.apply(k, "leaving", leave)
	f.apply(k, "shrinking", shrink)
	return f
}

// apply carries out operations on sets and sorts out what failed.
func (f *failure) apply(k *kernel, step string, ops []ipset.Op) {
	if len(ops) == 0 {
		return
	}
	defer k.doing.Begin(k.family.String(), step+" sets")()
	err := k.sets.Apply(ops)
	var be *ipset.BatchError
	if !stderrors.As(err, &be) {
		if err != nil {
			f.sets = append(f.sets, errors.Wrapf(err, "%s sets", step))
		}
		return
	}
	for _, e := range be.Errors {
		switch {
		case e.Kind == ipset.Destroy && stderrors.Is(e.Err, ipset.ErrInUse):
			f.inUse = append(f.inUse, ops[e.Index].Set)
		case e.Kind == ipset.Create && e.Elements == nil && refuses(e.Err):
			f.refusedSets[e.Set] = e.Error()
		case f.follows(e):
		default:
			f.sets = append(f.sets, errors.Wrapf(e, "%s sets", step))
		}
	}
}

// refuses says whether an error means that the kernel will not take the set as it is now, and not that something is in the way.
func refuses(err error) bool {
	var answer ipset.KernelError
	if !stderrors.As(err, &answer) {
		return false
	}
	return !stderrors.Is(err, ipset.ErrExists) && !stderrors.Is(err, ipset.ErrInUse) && !stderrors.Is(err, unix.ENOMEM) &&
		!stderrors.Is(err, unix.EBUSY) && !stderrors.Is(err, unix.EAGAIN)
}

// follows says whether an error comes of a set that the kernel refused.
func (f *failure) follows(e *ipset.OpError) bool {
	if _, refused := f.refusedSets[e.Set]; refused {
		return true
	}
	return len(e.Elements) > 0 && !slices.ContainsFunc(e.Elements, func(el ipset.Element) bool {
		_, refused := f.refusedSets[el.Set]
		return !refused
	})
}

// without leaves the rules out that need sets which the kernel refused.
func (f *failure) without(u iptables.Update) iptables.Update {
	if len(f.refusedSets) == 0 {
		return u
	}
	needy := func(r iptables.Rule) bool {
		return slices.ContainsFunc(setsOf(r.Match), func(name string) bool { _, refused := f.refusedSets[name]; return refused })
	}
	return u.Without(needy)
}

// lacksSet says whether iptables did not take a rule because there is no set of a name.
func lacksSet(err error) bool {
	return strings.Contains(err.Error(), ": Set "+naming.SetPrefix) && strings.Contains(err.Error(), " doesn't exist")
}

// opensNothing says whether a rule can be left out without opening anything: those of policies only allow, and those that report decide
// nothing.
func opensNothing(r iptables.Rule) bool {
	return r.Target == "-j ACCEPT" || r.Target == "-j RETURN" || strings.HasPrefix(r.Target, "-j NFLOG ") ||
		strings.HasPrefix(r.Target, "-j MARK ")
}

func (k *kernel) restore(ctx context.Context, u iptables.Update) ([]iptables.Refusal, error) {
	if u.Empty() {
		return nil, nil
	}
	ctx, cancel := k.timeout(ctx)
	defer cancel()
	before, err := k.filter.Fingerprint()
	if err != nil {
		return nil, err
	}
	refused, err := k.filter.ApplyWithout(ctx, u, scratchChain, opensNothing)
	if err != nil {
		return refused, err
	}
	k.unread = true
	after, err := k.filter.Fingerprint()
	if err != nil {
		return refused, err
	}
	// Had somebody else changed anything since we last looked, the print would not be ours to remember.
	if before == k.print && k.ours(before, after) {
		k.print = after
	} else {
		k.print = iptables.Fingerprint{}
	}
	return refused, nil
}

// ours says whether a change of the table was our transaction alone. Under nft, each makes one generation.
func (k *kernel) ours(before, after iptables.Fingerprint) bool {
	return k.filter.Backend() != iptables.NFT || after.Generation == before.Generation+1
}
