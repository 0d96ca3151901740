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
)

const (
	// defaultPath is where programs are looked for without a PATH, and where they look themselves.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// maxOutput is what is kept of a program's error output, in bytes.
	maxOutput = 4096
)

// errDenied marks errors whose cause is a missing capability.
type errDenied struct{ error }

// Unwrap returns what was denied.
func (e errDenied) Unwrap() error { return e.error }

// isDenied reports whether the cause of err is a missing capability.
func isDenied(err error) bool {
	var denied errDenied
	return errors.As(err, &denied)
}

// programDirs are the directories that programs are looked for in, in order.
type programDirs []string

// searchPath is the PATH of this process.
func searchPath() programDirs {
	path := os.Getenv("PATH")
	if path == "" {
		path = defaultPath
	}
	return filepath.SplitList(path)
}

// find returns the absolute path of a program. Relative directories are passed over.
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

// programs are the absolute paths of what works on one family in one backend.
type programs struct {
	iptables, save, restore string
}

// programs finds the programs that carry the backend in their name, else the plain ones if they are of that backend.
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

// missing is the error of programs that are not installed; an empty backend stands for both.
func (d programDirs) missing(family Family, backend Backend) error {
	name, which := family.command(), "any backend"
	if backend != "" {
		name, which = name+"-"+string(backend), "the "+string(backend)+" backend"
	}
	return errors.Errorf("no programs for %s in %s: neither %s, %s-save and %s-restore nor a plain %s of it are in %s: "+
		"install the package iptables (1.8 or later), or choose the other backend",
		family, which, name, name, name, family.command(), strings.Join(d, ":"))
}

// programMode asks an iptables program for its backend. Before 1.8 there was only one and no word of it.
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

// run executes a program without a shell, in its own process group, which is killed when the context ends. The program
// ends with us, however we end: what it still had to change would come after what our successor changes. Of the error
// output the first 4 KiB are kept.
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
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	return out.String(), strings.TrimSpace(errOut.String()), err
}

// environment is what programs get of ours: nothing but where iptables finds its lock and its extensions.
func environment() []string {
	env := []string{"PATH=" + defaultPath, "LC_ALL=C"}
	for _, name := range []string{"XTABLES_LOCKFILE", "XTABLES_LIBDIR"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// limitedBuffer keeps the first maxOutput bytes that are written to it.
type limitedBuffer struct{ bytes.Buffer }

// Write never fails and never writes short, so that the program does not block.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// unparsable says whether a program failed because of a rule in the table that it cannot read.
func unparsable(stderr string) bool { return strings.Contains(stderr, "Parsing nftables rule failed") }

// explain wraps a program's failure with its error output and, where we know one, the way out.
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
