package ulogd

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

const (
	// netlinkNetfilter is the netlink protocol of NFLOG (NETLINK_NETFILTER).
	netlinkNetfilter = "12"
	// lossReportPeriod is the minimum time between two log lines about lost packets.
	lossReportPeriod = time.Minute
)

// watchLoss adds the packets that the kernel could not deliver to ulogd2, with process id pid, to Stats.Lost until ctx
// ends.
func watchLoss(ctx context.Context, pid int, c Config, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	var counted, unreported uint64
	var reported time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		lost, err := lostPackets(pid, c.Groups)
		if err != nil {
			if ctx.Err() == nil {
				c.Log.Debug("lost packets cannot be counted", "err", err)
			}
			continue
		}
		if lost > counted {
			c.Stats.Lost.Add(lost - counted)
			unreported += lost - counted
			counted = lost
		}
		if unreported > 0 && time.Since(reported) >= lossReportPeriod {
			c.Log.Warn("more blocked packets than can be logged", "lost", unreported)
			unreported, reported = 0, time.Now()
		}
	}
}

// lostPackets returns the number of messages to the sockets of the groups that the kernel has dropped, in the network
// namespace of process pid.
func lostPackets(pid int, groups []Group) (uint64, error) {
	net := "/proc/" + strconv.Itoa(pid) + "/net/"
	logs, err := os.ReadFile(net + "netfilter/nfnetlink_log")
	if err != nil {
		return 0, errors.Wrap(err, "reading the owners of the NFLOG groups")
	}
	sockets, err := os.ReadFile(net + "netlink")
	if err != nil {
		return 0, errors.Wrap(err, "reading the netlink sockets")
	}
	return countDrops(string(sockets), groupPorts(string(logs), groups)), nil
}

// groupPorts returns the netlink port ids of the groups. A line of nfnetlink_log begins with group and port id.
func groupPorts(logs string, groups []Group) map[string]bool {
	wanted, ports := map[string]bool{}, map[string]bool{}
	for _, g := range groups {
		wanted[strconv.Itoa(int(g.Number))] = true
	}
	for line := range strings.Lines(logs) {
		f := strings.Fields(line)
		if len(f) >= 2 && wanted[f[0]] {
			ports[f[1]] = true
		}
	}
	return ports
}

// countDrops returns the sum of the drops of the netfilter sockets with these port ids. The columns of
// /proc/net/netlink are sk, protocol, port id, groups, rmem, wmem, dump, locks, drops, inode.
func countDrops(sockets string, ports map[string]bool) uint64 {
	var sum uint64
	for line := range strings.Lines(sockets) {
		f := strings.Fields(line)
		if len(f) < 9 || f[1] != netlinkNetfilter || !ports[f[2]] {
			continue
		}
		if n, err := strconv.ParseUint(f[8], 10, 64); err == nil { // not the heading
			sum += n
		}
	}
	return sum
}
