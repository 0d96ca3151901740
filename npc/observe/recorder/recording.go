package recorder

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/observe/flowsocket"
	"github.com/weave-npc/weave-npc/ulogd"
)

const (
	// savePeriod is the time between two writings of the file.
	savePeriod = 10 * time.Second
	// retryPeriod is the time until events are subscribed to again after a failure.
	retryPeriod = 10 * time.Second
)

// Config is what a recorder depends on.
type Config struct {
	Node string
	// Records is how many records are kept.
	Records int
	// Directory has the file that records are kept in over a restart; empty for none.
	Directory string
	// Socket is the path of the socket that records are read from; empty for none.
	Socket   string
	Names    Names
	Domains  Domains
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Recorder records connections.
type Recorder struct {
	config Config
	store  *flowlog.Store
	file   *flowlog.File      // nil if none is kept
	server *flowsocket.Server // nil if none is served
	staged *stagedReporter
	reader atomic.Pointer[conntrack.EventReader]
	spent  allowance

	mu     sync.Mutex // guards former, and that a reader that ends counts once
	former totals     // of the readers that have failed
}

// New returns a recorder that does nothing yet, and registers its metrics.
func New(c Config) *Recorder {
	r := &Recorder{config: c, store: flowlog.NewStore(c.Node, c.Records)}
	r.staged = newStagedReporter(c.Names.Groups, c.Log, c.Registry)
	r.register(c.Registry)
	return r
}

// Open reads the file and opens the socket.
func (r *Recorder) Open() (err error) {
	if r.config.Directory != "" {
		if r.file, err = flowlog.NewFile(r.config.Directory, r.store); err != nil {
			return err
		}
		skipped, err := r.file.Load()
		if err != nil {
			return err
		}
		if skipped > 0 {
			r.config.Log.Warn("the file of recorded connections has lines that are no records; they are passed over",
				"lines", skipped)
		}
		if err := r.file.LoadHits(); err != nil {
			r.config.Log.Warn("hits of rules are counted from now on", "err", err)
		}
	}
	if r.config.Socket != "" {
		r.server, err = flowsocket.Listen(r.config.Socket, r.store)
	}
	return err
}

// Run records connections until the context ends. It returns no error: without events, denied connections are still
// recorded.
func (r *Recorder) Run(ctx context.Context) error {
	var tasks sync.WaitGroup
	tasks.Go(func() { r.follow(ctx) })
	tasks.Go(func() { r.watchReplies(ctx) })
	tasks.Go(func() { r.watchStaged(ctx) })
	if r.file != nil {
		tasks.Go(func() { r.keep(ctx) })
	}
	if r.server != nil {
		tasks.Go(func() { r.server.Run(ctx, r.config.Log) })
	}
	tasks.Wait()
	return nil
}

// Denied records a packet that this node dropped. It opens a connection, or belongs to a protocol without any.
func (r *Recorder) Denied(p ulogd.Packet) {
	if p.Fragment || p.Truncated { // its port is not known
		return
	}
	c := flowlog.Connection{Src: p.Src, Dst: p.Dst, Service: flow.Service{Protocol: p.Protocol, Port: p.DstPort}}
	r.record(flowlog.Denied, []flowlog.Connection{c})
}

// record records connections, in haste while that takes too much time.
func (r *Recorder) record(v flowlog.Verdict, opened []flowlog.Connection) {
	start := time.Now()
	r.store.Add(start.UTC(), evaluator{r.config.Names, r.config.Domains, r.spent.exceeded(start)}, v, opened)
	r.spent.spend(time.Since(start))
}

// follow records the connections that the kernel's events report. A failure is logged when it begins.
func (r *Recorder) follow(ctx context.Context) {
	failing := ""
	for {
		err := r.read(ctx, func() {
			if failing != "" {
				r.config.Log.Info("allowed connections are recorded again")
			}
			failing = ""
		})
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != failing {
			r.config.Log.Error("allowed connections are not recorded", "err", err)
			failing = text
		}
		if !sleep(ctx, retryPeriod) {
			return
		}
	}
}

// read reads events until that fails or the context ends.
func (r *Recorder) read(ctx context.Context, began func()) error {
	reader, err := conntrack.OpenEvents()
	if err != nil {
		return err
	}
	began()
	r.reader.Store(reader)
	defer func() {
		r.mu.Lock()
		r.former.add(reader)
		r.reader.Store(nil)
		r.mu.Unlock()
		reader.Close()
	}()
	var batch []flowlog.Connection
	return reader.Run(ctx, func(opened []conntrack.Opened) {
		batch = batch[:0]
		for _, c := range opened {
			batch = append(batch, connection(c))
		}
		r.record(flowlog.Allowed, batch)
	})
}

func connection(c conntrack.Opened) flowlog.Connection {
	return flowlog.Connection{Src: c.Src, Dst: c.Dst, Service: flow.Service{Protocol: c.Protocol, Port: c.Port}}
}

// keep writes the file from time to time, and at the end.
func (r *Recorder) keep(ctx context.Context) {
	failing, short := false, false
	save := func() {
		omitted, err := r.file.Save()
		if err != nil && !failing {
			r.config.Log.Error("recorded connections are not kept", "err", err)
		}
		if omitted > 0 && !short {
			r.config.Log.Warn("the file of recorded connections is full: the oldest records are only in memory",
				"records", omitted)
		}
		failing, short = err != nil, omitted > 0
	}
	for sleep(ctx, savePeriod) {
		save()
	}
	save()
}

// sleep waits, and reports whether the context has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
