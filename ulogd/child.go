package ulogd

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	// none is the user and group of ulogd2. It parses untrusted packets, and as root it would make itself a real-time
	// process above everything else on the node.
	none = 65534
	// pipeSize is the capacity of a pipe, which fills up while the handler is busy. It is the maximum without
	// privileges.
	pipeSize = 1 << 20
)

// child is one process of ulogd2.
type child struct {
	c       Config
	timing  timing
	cmd     *exec.Cmd
	config  *os.File
	readers []*os.File // read ends of the pipes: one per group, then standard error
	writers []*os.File // write ends, for the child
	lines   *lineLog
	begun   atomic.Int32 // groups whose capture has begun
	record  *recording   // nil for none

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex // guards handle; held while it is called, so that one call comes at a time
	handle func(Packet)
}

// runChild runs ulogd2 until it ends or ctx does. It returns whether ulogd2 came up and why it ended. It leaves no
// process and no open file.
func runChild(ctx context.Context, c Config, p timing, inst installation, rec *recording,
	handle func(Packet)) (cameUp bool, err error) {
	ch := &child{c: c, timing: p, lines: &lineLog{log: c.Log}, record: rec, handle: handle}
	ch.ctx, ch.cancel = context.WithCancelCause(ctx)
	defer ch.cancel(nil)
	defer ch.closeAll()
	if err := ch.open(inst); err != nil {
		return false, err
	}
	if err := ch.start(inst); err != nil {
		return false, err
	}
	closeFiles(ch.writers) // otherwise the pipes would never end
	ch.writers = nil
	var reading sync.WaitGroup
	for i := range c.Groups {
		reading.Go(func() { ch.readGroup(i) })
	}
	reading.Go(func() { ch.lines.copy(ch.readers[len(c.Groups)]) })
	var loss sync.WaitGroup
	loss.Go(func() { watchLoss(ch.ctx, ch.cmd.Process.Pid, ch.c, p.lossPeriod) })
	late := time.AfterFunc(p.startup, ch.checkBegun)

	err = ch.cmd.Wait()
	late.Stop()
	reading.Wait() // for the rest in the pipes of a dead child
	ch.c.Stats.Running.Store(false)
	why := context.Cause(ch.ctx)
	ch.cancel(nil)
	loss.Wait()
	if why != nil {
		err = why
	}
	cameUp = ch.cameUp()
	if last := ch.lines.lastComplaint(); last != "" {
		return cameUp, errors.Errorf("%v (it said: %s)", err, last)
	}
	return cameUp, err
}

// open creates the configuration and the pipes.
func (ch *child) open(inst installation) error {
	fd, err := unix.MemfdCreate("ulogd.conf", unix.MFD_CLOEXEC)
	if err != nil {
		return errors.Wrap(err, "creating ulogd2's configuration")
	}
	ch.config = os.NewFile(uintptr(fd), "ulogd.conf")
	if _, err := ch.config.WriteString(configuration(ch.c.Groups, ch.c.Mark, inst.plugins)); err != nil {
		return errors.Wrap(err, "writing ulogd2's configuration")
	}
	for range len(ch.c.Groups) + 1 {
		r, w, err := os.Pipe()
		if err != nil {
			return errors.Wrap(err, "creating a pipe for ulogd2")
		}
		ch.readers, ch.writers = append(ch.readers, r), append(ch.writers, w)
		// ulogd2 opens the pipe again as another user, by its name in /proc. No other process can name it.
		if err := w.Chmod(0o622); err != nil {
			return errors.Wrap(err, "making ulogd2's pipe writable")
		}
		if err := setPipeSize(w); err != nil { // a smaller pipe works too
			ch.c.Log.Debug("ulogd2's pipe keeps its size", "err", err)
		}
	}
	return nil
}

func setPipeSize(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { _, failed = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	if err != nil {
		return err
	}
	return failed
}

// start starts ulogd2 as an unprivileged user, or as the user of this process if that may not be changed.
func (ch *child) start(inst installation) error {
	if os.Geteuid() == 0 {
		err := ch.startAs(inst, true)
		if !errors.Is(err, os.ErrPermission) {
			return errors.Wrap(err, "starting ulogd2")
		}
		ch.c.Log.Debug("ulogd2 cannot run as an unprivileged user", "err", err)
	}
	return errors.Wrap(ch.startAs(inst, false), "starting ulogd2")
}

func (ch *child) startAs(inst installation, unprivileged bool) error {
	groups := len(ch.c.Groups)
	ch.cmd = exec.CommandContext(ch.ctx, inst.binary, "-c", configFile)
	ch.cmd.Env = []string{}
	ch.cmd.Dir = "/"
	ch.cmd.Stdout = ch.writers[groups]
	ch.cmd.Stderr = ch.writers[groups]
	ch.cmd.ExtraFiles = append([]*os.File{ch.config}, ch.writers[:groups]...)
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if unprivileged {
		attr.Credential = &syscall.Credential{Uid: none, Gid: none}
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	ch.cmd.SysProcAttr = attr
	ch.cmd.Cancel = func() error { return syscall.Kill(-ch.cmd.Process.Pid, syscall.SIGKILL) }
	return ch.cmd.Start()
}

// readGroup passes the packets of the i-th group to the handler until the child ends. It ends the child if its output
// is not a capture.
func (ch *child) readGroup(i int) {
	g := ch.c.Groups[i]
	r, err := newCaptureReader(ch.readers[i])
	if err == nil {
		if int(ch.begun.Add(1)) == len(ch.c.Groups) {
			ch.c.Stats.Running.Store(true)
			ch.c.Log.Info("ulogd2 runs", "pid", ch.cmd.Process.Pid)
		}
		for err == nil && ch.ctx.Err() == nil {
			err = ch.readPacket(g, r)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		ch.cancel(errors.Wrapf(err, "reading the packets of NFLOG group %d", g.Number))
	}
}

// readPacket records one packet of a group and passes it to the handler.
func (ch *child) readPacket(g Group, r *captureReader) error {
	at, b, err := r.next()
	if err != nil {
		return err
	}
	p, err := decode(b)
	ch.record.add(at, b, p.Length)
	if err != nil {
		ch.c.Stats.Undecodable.Add(1)
		ch.c.Log.Debug("a logged packet cannot be decoded", "group", g.Name, "bytes", len(b), "err", err)
		return nil
	}
	p.Group, p.Time = g.Name, at
	ch.c.Stats.Packets.Add(1)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.handle(p)
	return nil
}

// cameUp reports whether the captures of all groups have begun.
func (ch *child) cameUp() bool { return int(ch.begun.Load()) == len(ch.c.Groups) }

// checkBegun ends a child that has not opened all groups: ulogd2 keeps running if another process holds one of them.
func (ch *child) checkBegun() {
	if n := int(ch.begun.Load()); n < len(ch.c.Groups) {
		ch.cancel(errors.Errorf("ulogd2 opened %d of %d NFLOG groups", n, len(ch.c.Groups)))
	}
}

func (ch *child) closeAll() {
	closeFiles(ch.readers)
	closeFiles(ch.writers)
	if ch.config != nil {
		closeFiles([]*os.File{ch.config})
	}
}

// closeFiles closes pipes and memory files. Errors do not matter for these.
func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
