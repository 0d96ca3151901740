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
	// nobody is the user and group that ulogd2 runs as: it parses what anyone sends, and as root it would make itself
	// a real-time process above everything else on the node.
	nobody = 65534
	// pipeSize is what a pipe may hold while the handler is busy; the most that a pipe may have without privileges.
	pipeSize = 1 << 20
)

// child is one process of ulogd2.
type child struct {
	c      Config
	pace   pace
	cmd    *exec.Cmd
	config *os.File
	ours   []*os.File // ends of the pipes that we read: one per group, then standard error
	theirs []*os.File // the child's ends of the same
	lines  *lineLog
	begun  atomic.Int32 // groups whose capture has begun
	record *recording   // nil for none

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex // held while the handler is called
	handle func(Packet)
}

// runChild runs ulogd2 until it ends or ctx does, and says whether it came up and why it ended. No process and no descriptor is left.
func runChild(ctx context.Context, c Config, p pace, inst installation, rec *recording, handle func(Packet)) (cameUp bool, err error) {
	ch := &child{c: c, pace: p, lines: newLineLog(c.Log), record: rec, handle: handle}
	ch.ctx, ch.cancel = context.WithCancelCause(ctx)
	defer ch.cancel(nil)
	defer ch.closeAll()
	if err := ch.open(inst); err != nil {
		return false, err
	}
	if err := ch.start(inst); err != nil {
		return false, err
	}
	closeFiles(ch.theirs) // else we would never see the end of the pipes
	ch.theirs = nil
	var readers sync.WaitGroup
	for i := range c.Groups {
		readers.Go(func() { ch.readGroup(i) })
	}
	readers.Go(func() { ch.lines.copy(ch.ours[len(c.Groups)]) })
	var loss sync.WaitGroup
	loss.Go(ch.watchLoss)
	late := time.AfterFunc(p.startup, ch.checkBegun)

	err = ch.cmd.Wait()
	late.Stop()
	readers.Wait() // for what a dead child has left in its pipes
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

// open makes the configuration and the pipes.
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
		ch.ours, ch.theirs = append(ch.ours, r), append(ch.theirs, w)
		// ulogd2 opens the pipe once more, by its name in /proc, and as another user. Nobody else can name it.
		if err := w.Chmod(0o622); err != nil {
			return errors.Wrap(err, "making ulogd2's pipe writable")
		}
		if err := setPipeSize(w); err != nil { // a smaller pipe does as well, with less slack
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

// start starts ulogd2 as nobody, or as ourselves where we may not change the user.
func (ch *child) start(inst installation) error {
	if os.Geteuid() == 0 {
		err := ch.startAs(inst, true)
		if !errors.Is(err, os.ErrPermission) {
			return errors.Wrap(err, "starting ulogd2")
		}
		ch.c.Log.Debug("ulogd2 cannot run as nobody", "err", err)
	}
	return errors.Wrap(ch.startAs(inst, false), "starting ulogd2")
}

func (ch *child) startAs(inst installation, unprivileged bool) error {
	groups := len(ch.c.Groups)
	ch.cmd = exec.CommandContext(ch.ctx, inst.binary, "-c", configFile)
	ch.cmd.Env = []string{}
	ch.cmd.Dir = "/"
	ch.cmd.Stdout = ch.theirs[groups]
	ch.cmd.Stderr = ch.theirs[groups]
	ch.cmd.ExtraFiles = append([]*os.File{ch.config}, ch.theirs[:groups]...)
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if unprivileged {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	ch.cmd.SysProcAttr = attr
	ch.cmd.Cancel = func() error { return syscall.Kill(-ch.cmd.Process.Pid, syscall.SIGKILL) }
	return ch.cmd.Start()
}

// readGroup gives the packets of the i-th group to the handler until the child ends; it ends the child if what it
// writes makes no sense.
func (ch *child) readGroup(i int) {
	g := ch.c.Groups[i]
	r, err := newCaptureReader(ch.ours[i])
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

func (ch *child) readPacket(g Group, r *captureReader) error {
	at, b, err := r.next()
	if err != nil {
		return err
	}
	p, err := Decode(b)
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

// cameUp says whether the captures of all groups have begun.
func (ch *child) cameUp() bool { return int(ch.begun.Load()) == len(ch.c.Groups) }

// checkBegun ends a child that did not come up with all groups: ulogd2 itself runs on when one of them is held by
// another process.
func (ch *child) checkBegun() {
	if n := int(ch.begun.Load()); n < len(ch.c.Groups) {
		ch.cancel(errors.Errorf("ulogd2 opened %d of %d NFLOG groups", n, len(ch.c.Groups)))
	}
}

func (ch *child) closeAll() {
	closeFiles(ch.ours)
	closeFiles(ch.theirs)
	if ch.config != nil {
		closeFiles([]*os.File{ch.config})
	}
}

// closeFiles closes pipes and memory files, where closing cannot fail in a way that matters.
func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
