package iptables

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	// defaultPath is the PATH of programs, and the search path of this process if it has no PATH.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// maxOutput bounds the error output that is kept of a program, in bytes.
	maxOutput = 4096
	// lockFile is where the legacy programs take their lock, unless XTABLES_LOCKFILE names another file.
	lockFile = "/run/xtables.lock"
	// lockPoll is the time between two looks at the lock.
	lockPoll = 5 * time.Millisecond
)

// errDenied marks errors whose cause is a missing capability.
type errDenied struct{ error }

// Unwrap returns the marked error.
func (e errDenied) Unwrap() error { return e.error }

// noBackendError marks the error of a kernel without a backend.
type noBackendError struct{ error }

// Unwrap returns the marked error.
func (e noBackendError) Unwrap() error { return e.error }

// IsTableMissing reports whether the cause of err is a kernel without the filter table, or without tables at all.
func IsTableMissing(err error) bool {
	var failure *restoreError
	var without noBackendError
	return errors.As(err, &without) || errors.As(err, &failure) && !isDenied(err) &&
		(strings.Contains(failure.Output, "unable to initialize table") || // legacy
			strings.Contains(failure.Output, "Could not fetch rule set generation id")) // nft
}

// isDenied reports whether the cause of err is a missing capability.
func isDenied(err error) bool {
	var denied errDenied
	return errors.As(err, &denied)
}

// programDirs are the directories where programs are looked up, in order.
type programDirs []string

// searchPath returns the directories of this process's PATH.
func searchPath() programDirs {
	path := os.Getenv("PATH")
	if path == "" {
		path = defaultPath
	}
	return filepath.SplitList(path)
}

// find returns the absolute path of a program. It skips relative directories.
func (d programDirs) find(name string) (path string, found bool) {
	for _, dir := range d {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && filepath.IsAbs(path) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}

// programs holds the absolute paths of the programs for one family in one backend.
type programs struct {
	iptables, save, restore string
}

// programs returns the programs that have the backend in their names, or the plain ones if they are of that backend.
func (d programDirs) programs(ctx context.Context, family Family, backend Backend) (programs, error) {
	for _, name := range []string{family.command() + "-" + string(backend), family.command()} {
		iptables, ok1 := d.find(name)
		save, ok2 := d.find(name + "-save")
		restore, ok3 := d.find(name + "-restore")
		if !ok1 || !ok2 || !ok3 {
			continue
		}
		if name == family.command() {
			mode, err := programMode(ctx, iptables)
			if err != nil {
				return programs{}, err
			}
			if mode != backend {
				continue
			}
		}
		return programs{iptables: iptables, save: save, restore: restore}, nil
	}
	return programs{}, d.missing(family, backend)
}

// missing returns the error for programs that are not installed. An empty backend stands for both.
func (d programDirs) missing(family Family, backend Backend) error {
	name, which := family.command(), "any backend"
	if backend != "" {
		name, which = name+"-"+string(backend), "the "+string(backend)+" backend"
	}
	return errors.Errorf("no programs for %s in %s: neither %s, %s-save and %s-restore nor a plain %s of it "+
		"are in %s: "+
		"install the package iptables (1.8 or later), or choose the other backend",
		family, which, name, name, name, family.command(), strings.Join(d, ":"))
}

// programMode returns the backend of an iptables program. Versions before 1.8 have legacy only and do not report it.
func programMode(ctx context.Context, path string) (Backend, error) {
	stdout, stderr, err := run(ctx, "", path, "--version")
	if err != nil {
		return "", explain(err, stderr, "asking %s for its version", path)
	}
	if strings.Contains(stdout, "(nf_tables)") {
		return NFT, nil
	}
	return Legacy, nil
}

// run executes a program without a shell, in its own process group, which it kills when the context ends. The kernel
// kills the program when this process dies, so that the program cannot overwrite the changes of the next instance. run
// returns the first 4 KiB of the error output.
func run(ctx context.Context, stdin, path string, args ...string) (stdout, stderr string, err error) {
	// The kernel sends the parent-death signal when the thread that started the program ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out bytes.Buffer
	var errOut limitedBuffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environment()
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout = &out
	cmd.Stderr = &errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // on a busy node, the output of a program that has ended is read late
	err = cmd.Run()
	if ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	return out.String(), strings.TrimSpace(errOut.kept.String()), err
}

// environment returns the environment of programs: of this process's variables only those that locate the lock and the
// extensions of iptables.
func environment() []string {
	env := []string{"PATH=" + defaultPath, "LC_ALL=C"}
	for _, name := range []string{"XTABLES_LOCKFILE", "XTABLES_LIBDIR"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// limitedBuffer keeps the first maxOutput bytes that are written to it. The buffer is no embedded field: its ReadFrom
// would bypass the limit.
type limitedBuffer struct{ kept bytes.Buffer }

// Write never fails and never returns a short count, so that the program does not block.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := maxOutput - b.kept.Len(); room > 0 {
		b.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// unparsable reports whether a program failed because it cannot read a rule of the table.
func unparsable(stderr string) bool { return strings.Contains(stderr, "Parsing nftables rule failed") }

// explain wraps the error of a program with its error output and, for known causes, with advice.
func explain(err error, stderr, format string, args ...any) error {
	if stderr != "" {
		err = errors.WithMessage(err, stderr)
	}
	err = errors.Wrapf(err, format, args...)
	switch {
	case strings.Contains(stderr, "lock file"):
		return errors.WithMessage(err, "the host's /run/xtables.lock must be mounted, and writable")
	case unparsable(stderr):
		return errors.WithMessage(err, "a rule written with nft, or by a later iptables, cannot be shown by this one: "+
			"remove the rule, or install an iptables as late as the host's")
	case strings.Contains(stderr, "Permission denied"), strings.Contains(stderr, "Operation not permitted"):
		return errDenied{errors.WithMessage(err, "root with CAP_NET_ADMIN and CAP_NET_RAW is needed")}
	}
	return err
}

// Locked reports whether another process holds the lock that Apply needs. The nft backend has none.
func (t *Table) Locked() bool {
	if t.backend != Legacy {
		return false
	}
	path := os.Getenv("XTABLES_LOCKFILE")
	if path == "" {
		path = lockFile
	}
	f, err := os.Open(path)
	if err != nil {
		return false // there was never a lock, or the program reports why it cannot take it
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}

// AwaitLock waits until no other process holds the lock. It returns an error if the context ends first.
func (t *Table) AwaitLock(ctx context.Context) error {
	look := time.NewTicker(lockPoll)
	defer look.Stop()
	for t.Locked() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return nil
}
