package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// redirectsEvery is the period of looks for what may redirect packets.
	redirectsEvery = time.Minute
	// maxRedirects bounds how many of them a text names: a CNI may have a program on the interface of each pod.
	maxRedirects = 5
)

// Redirects is what may send packets of this node past FORWARD: an interface with what receives its packets, each.
type Redirects []string

// String returns what was found, and what that means; empty if nothing was.
func (r Redirects) String() string {
	if len(r) == 0 {
		return ""
	}
	text := strings.Join(r[:min(len(r), maxRedirects)], ", ")
	if more := len(r) - maxRedirects; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": policies do not apply to packets that these redirect past FORWARD"
}

// FollowRedirects warns of what FindRedirects finds, whenever that has changed, until the context ends.
func FollowRedirects(ctx context.Context, log *slog.Logger) error {
	before := ""
	for {
		found, err := FindRedirects()
		now := found.String()
		if err != nil {
			now = "it is not known whether packets pass FORWARD: " + err.Error()
		}
		if now != "" && now != before {
			log.Warn(now)
		}
		before = now
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(redirectsEvery):
		}
	}
}

// FindRedirects finds programs of XDP, eBPF programs of tc, and rules of tc that redirect what an interface receives.
// Nothing shows what a program does. What tc redirects to an ifb, to limit the rate of a pod, comes back.
func FindRedirects() (Redirects, error) {
	list, err := listLinks()
	if err != nil {
		return nil, err
	}
	var found Redirects
	for _, l := range list.all {
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			found = append(found, l.Attrs().Name+" (XDP)")
		}
	}
	qdiscs, err := retryInterrupted(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return found, nil // a kernel without tc
	}
	if err != nil {
		return nil, errors.Wrap(err, "listing the queues of interfaces")
	}
	for _, q := range qdiscs {
		l := list.byIndex[q.Attrs().LinkIndex]
		if l == nil || q.Type() != "ingress" && q.Type() != "clsact" {
			continue
		}
		filters, err := retryInterrupted(func() ([]netlink.Filter, error) {
			return netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		})
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) { // it went meanwhile
			return nil, errors.Wrapf(err, "listing what tc does with packets of %s", l.Attrs().Name)
		}
		for _, f := range filters {
			if how := list.redirects(f); how != "" {
				found = append(found, l.Attrs().Name+" ("+how+")")
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// redirects returns how a filter may redirect packets; empty if it does not.
func (l links) redirects(f netlink.Filter) string {
	var actions []netlink.Action
	switch f := f.(type) {
	case *netlink.BpfFilter:
		return "eBPF of tc"
	case *netlink.U32:
		actions = f.Actions
	case *netlink.MatchAll:
		actions = f.Actions
	case *netlink.Flower:
		actions = f.Actions
	}
	for _, a := range actions {
		switch a := a.(type) {
		case *netlink.BpfAction:
			return "eBPF of tc"
		case *netlink.MirredAction:
			if to := l.byIndex[a.Ifindex]; to != nil && to.Type() != "ifb" {
				return "tc to " + to.Attrs().Name
			}
		}
	}
	return ""
}
