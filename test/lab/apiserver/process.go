package apiserver

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/lab"
)

// process is a command that runs until it is stopped, with its output in a file.
type process struct {
	name    string
	command *lab.Cmd
	log     string
	ended   chan struct{}
	err     error // what the command ended with, once ended is closed
}

// startProcess starts dir's executable on a host.
func startProcess(host *lab.Host, path, logDir string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(path), ended: make(chan struct{})}
	p.log = filepath.Join(logDir, p.name+".log")
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Wrapf(err, "opening %s", p.log)
	}
	defer output.Close()
	p.command = host.Command(context.Background(), path, args...)
	p.command.Stdout, p.command.Stderr = output, output
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.err = p.command.Wait()
	}()
	return p, nil
}

// await asks ready, with pauses, until it returns nil; it gives up when the process or the context has ended.
func (p *process) await(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return errors.Errorf("%s ended (%v); its last words:\n%s", p.name, p.err, p.lastWords())
		case <-ctx.Done():
			return errors.Errorf("%s is not ready: %v; its last words:\n%s", p.name, err, p.lastWords())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lastWords returns the end of the log.
func (p *process) lastWords() string {
	const much = 4096
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-much), io.SeekStart)
	}
	end, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(end))
}

// timeout is how long a process may take to end by itself.
const timeout = 5 * time.Second

// stop asks the process to end, and kills it if it does not.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return errors.Wrapf(err, "stopping %s", p.name)
		}
		select {
		case <-p.ended:
			return nil
		case <-time.After(timeout):
		}
	}
	return errors.Errorf("%s does not end though it was killed", p.name)
}
