package lab

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/pkg/errors"
)

// Cmd is an exec.Cmd that runs in a host's network namespace, in a process group of its own, and is killed with this
// process and with the host. Its fields may be set before it starts, as those of any exec.Cmd.
type Cmd struct {
	*exec.Cmd
	host     *Host
	answered chan struct{} // closed when no process is intercepted any more; nil if none was
}

// Command prepares a command on the host. The end of the context kills it. The commands of a host share a lock of
// iptables-legacy that those of other hosts do not wait for, as on a machine of their own.
func (h *Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(h.harness.Dir(), h.netns+".xtables"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return &Cmd{Cmd: cmd, host: h}
}

// Start starts the command. Wait must be called after it.
func (c *Cmd) Start() error {
	err := c.host.inside(c.Cmd.Start)
	if err != nil {
		return errors.Wrapf(err, "starting %s on host %s", c.Path, c.host.name)
	}
	c.host.mu.Lock()
	c.host.commands[c] = true
	stopped := c.host.stopped
	c.host.mu.Unlock()
	if stopped {
		_ = c.Process.Kill()
	}
	return nil
}

// Wait waits until the command has ended; it must be called once.
func (c *Cmd) Wait() error {
	err := c.Cmd.Wait()
	if c.answered != nil {
		<-c.answered
	}
	c.host.mu.Lock()
	delete(c.host.commands, c)
	c.host.mu.Unlock()
	return err
}

// Run starts the command and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns what it printed on its standard output. An error has its standard error in it.
func (c *Cmd) Output() ([]byte, error) {
	var stdout, stderr bytes.Buffer
	c.Stdout = &stdout
	if c.Stderr == nil {
		c.Stderr = &stderr
	}
	err := c.Run()
	return stdout.Bytes(), errors.Wrapf(err, "running %s on host %s: %s", c.Args, c.host.name,
		bytes.TrimSpace(stderr.Bytes()))
}

// CombinedOutput runs the command and returns what it printed.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	err := c.Run()
	return output.Bytes(), err
}

// kill ends the command and its process group. Reaping it stays with Wait.
func (c *Cmd) kill() {
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	_ = killAndWait(c.Process.Pid)
}
