// Package ulogd runs and supervises ulogd2, and decodes the packets that it logs.
//
//	kernel ── NFLOG group ──▶ ulogd2 ── pcap, one pipe per group ──▶ Run ──▶ handle(Packet)
//	                          (child process, restarted)                └──▶ recording (optional)
//
//	child, installation, configuration    the process: where it is, what it has to do, how it ends
//	capture, packet                       records of the pipe, decoded
//	line, loss                            its messages, for the log; the packets that the kernel could not deliver
//
// It knows nothing about policies or pods, and imports no other package of this module.
//
//	config := ulogd.Config{Groups: []ulogd.Group{{Number: 86, Name: "ingress"}}}
//	err := ulogd.Run(ctx, config, func(p ulogd.Packet) { fmt.Println(p.Src, p.Dst) })
package ulogd

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Run runs ulogd2 and calls handle for every logged packet, one call at a time, until ctx ends. Then it ends the child
// process and returns nil. It returns an error, at once, only for a Config that can never work. If ulogd2 is absent,
// fails or dies, Run logs it and tries again. If handle is slow, the kernel drops packets, which Stats.Lost counts.
//
// ulogd2 inherits the network namespace of the calling thread, which Run locks. It runs as an unprivileged user with
// only CAP_NET_ADMIN, if this process may change the user, and needs no writable directory.
func Run(ctx context.Context, c Config, handle func(Packet)) error {
	return run(ctx, c, defaultTiming(), handle)
}

func run(ctx context.Context, c Config, p timing, handle func(Packet)) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Stats == nil {
		c.Stats = new(Stats)
	}
	// The kernel sends the parent-death signal when the thread that started the child ends, not when the process does.
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

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
