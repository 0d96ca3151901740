// Package ulogd runs and supervises ulogd2 and decodes the packets that it logs.
package ulogd

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
)

// Config says which NFLOG groups to read and how to run ulogd2. The zero value of every field but Groups is usable.
type Config struct {
	// Groups are the NFLOG groups to read, at least one, each in the network namespace that Run is called in.
	Groups []Group
	// Mark is the mark that packets of others lack, which are passed over; below 1<<31.
	Mark uint32
	// Binary is the path of ulogd2's executable; empty: it is looked for in PATH and in the usual directories.
	Binary string
	// PluginDir holds ulogd2's plug-ins; empty: the directories of Debian, Ubuntu, Fedora and Alpine are tried.
	PluginDir string
	// Recording is the path of a capture file (pcap, of raw IP packets) that keeps what was logged last; empty for none. When it has
	// grown to half of RecordingSize it gets .1 behind its name, where the one before goes, and a new one begins.
	Recording string
	// RecordingSize is the most bytes that the two files take together.
	RecordingSize int64
	// Log receives what Run and ulogd2 have to say; nil: slog.Default.
	Log *slog.Logger
	// Stats, when not nil, is counted up while Run runs.
	Stats *Stats
}

// Group is one NFLOG group. ulogd2's pcap output does not carry the rule's prefix, so the group is all that tells
// which rule a packet met.
type Group struct {
	// Number is the argument of --nflog-group. 0 is refused: ulogd2 takes it as an order to replace the system's
	// own packet loggers.
	Number uint16
	// Name is what Packet.Group says of the packets of this group.
	Name string
}

// Stats counts what went through Run. The counters may be read at any time.
type Stats struct {
	// Packets is the number of packets given to the handler.
	Packets atomic.Uint64
	// Undecodable is the number of logged packets that Decode refused.
	Undecodable atomic.Uint64
	// Restarts is how often ulogd2 was started again after it had ended, or had not come up.
	Restarts atomic.Uint64
	// Lost is the number of packets that the kernel could not hand to ulogd2 because its receive buffer was full.
	// It lags by a second, and what was lost in a process's last second is unknown.
	Lost atomic.Uint64
	// Unrecorded is the number of packets that could not be written to the recording.
	Unrecorded atomic.Uint64
	// Running says that ulogd2 runs and reads all groups.
	Running atomic.Bool
}

// pace holds the periods of the supervision; tests use shorter ones.
type pace struct {
	lookAgain  time.Duration // between two looks for an absent ulogd2
	firstDelay time.Duration // before the first restart; doubles with each further one
	maxDelay   time.Duration // the longest wait before a restart
	healthy    time.Duration // a process that lived this long resets the delay
	cameUp     time.Duration // the longest wait before a restart of a process that had come up
	startup    time.Duration // by then every group's capture must have begun
	lossPeriod time.Duration // between two readings of the kernel's loss counters
}

func usualPace() pace {
	return pace{
		lookAgain:  15 * time.Second,
		firstDelay: 100 * time.Millisecond,
		maxDelay:   30 * time.Second,
		healthy:    10 * time.Second,
		cameUp:     time.Second,
		startup:    10 * time.Second,
		lossPeriod: time.Second,
	}
}

// Run runs ulogd2 and calls handle for every packet that it logs, one call at a time, until ctx ends; it then returns
// nil, with the child process gone. It returns an error, at once, only for a Config that can never work. An absent,
// failing or dying ulogd2 is logged and tried again. A slow handle makes the kernel drop packets, which Lost counts.
//
// ulogd2 inherits the network namespace of the thread that Run is called on; Run keeps to that thread. It runs
// as user nobody with CAP_NET_ADMIN alone where we may change the user, and needs no writable directory.
func Run(ctx context.Context, c Config, handle func(Packet)) error {
	return run(ctx, c, usualPace(), handle)
}

func run(ctx context.Context, c Config, p pace, handle func(Packet)) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Stats == nil {
		c.Stats = new(Stats)
	}
	// The kernel sends the parent-death signal when the thread that started the child ends, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	rec := newRecording(c)
	if rec != nil {
		done, writer := make(chan struct{}), sync.WaitGroup{}
		writer.Go(func() { rec.run(done) })
		defer func() {
			close(done)
			writer.Wait()
			rec.close()
		}()
	}
	delay, absent := p.firstDelay, false
	for ctx.Err() == nil {
		inst, err := findInstallation(c, "/")
		if err != nil {
			if !absent {
				c.Log.Warn("ulogd2 is absent, blocked packets are not reported; install ulogd2 and its pcap plug-in"+
					" (Debian, Ubuntu: ulogd2 and ulogd2-pcap; Alpine: ulogd)", "err", err)
			}
			absent = true
			sleep(ctx, p.lookAgain)
			continue
		}
		absent = false
		began := time.Now()
		cameUp, err := runChild(ctx, c, p, inst, rec, handle)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) >= p.healthy {
			delay = p.firstDelay
		}
		if cameUp {
			delay = min(delay, p.cameUp)
		}
		wait := delay/2 + rand.N(delay/2+1)
		c.Log.Warn("ulogd2 ended, starting it again", "err", err, "in", wait)
		sleep(ctx, wait)
		delay = min(2*delay, p.maxDelay)
		if ctx.Err() == nil {
			c.Stats.Restarts.Add(1)
		}
	}
	return nil
}

// Check says why Run would return an error at once.
func (c Config) Check() error {
	if len(c.Groups) == 0 {
		return errors.New("no NFLOG group to read")
	}
	seen := map[uint16]bool{}
	for _, g := range c.Groups {
		if g.Number == 0 {
			return errors.Errorf("NFLOG group 0 (%q) is the system's own", g.Name)
		}
		if seen[g.Number] {
			return errors.Errorf("NFLOG group %d is given twice", g.Number)
		}
		seen[g.Number] = true
	}
	if c.Recording != "" {
		if err := checkRecording(c.Recording, c.RecordingSize); err != nil {
			return err
		}
	}
	return nil
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
