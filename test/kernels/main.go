// Command kernels runs commands, and the tests of this repository, under Debian's kernels in virtual machines.
//
//	kernels [-kernel 6.12] COMMAND...               runs a command as root, and ends with its status
//	kernels -tests [-kernels "6.1 6.12"] [...]      runs suites of tests, and prints a table (make kernels)
//
//	fetch      takes kernels from apt into .cache/kernels
//	initrd     packs this program and the modules that reach the root file system
//	machine    runs qemu                             guest    is the first process there
//	suites     builds tests, runs them in machines and counts what passed
//
// A machine has this one's root file system read-only below an overlay in memory, no network, and all modules of its
// kernel. It ends with this program, however that ends, and leaves nothing behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// refused is the status if the machine did not run the command to its end.
const refused = 125

func main() {
	if os.Getpid() == 1 {
		guest()
	}
	status, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		status = refused
	}
	os.Exit(status)
}

// options are what the flags say.
type options struct {
	kernel, kernels, backends, suites, only string
	tests                                   bool
	limit                                   time.Duration
}

func parse() options {
	var o options
	flag.StringVar(&o.kernel, "kernel", "6.12", "the kernel of the command: a series of Debian's, or with -cloud")
	flag.BoolVar(&o.tests, "tests", false, "run suites of tests instead of a command")
	flag.StringVar(&o.kernels, "kernels", "6.1 6.12", "the kernels of the tests")
	flag.StringVar(&o.backends, "backends", "nft legacy", "the backends of iptables of the tests")
	flag.StringVar(&o.suites, "suites", strings.Join(folders(), " "), "the folders of the tests")
	flag.StringVar(&o.only, "run", "", "which tests of them, as of go test -run")
	flag.DurationVar(&o.limit, "limit", 90*time.Minute, "how long a machine may run")
	flag.Parse()
	return o
}

// run does what the flags say, and returns the status to end with.
func run() (int, error) {
	// The kernel ends qemu with the thread that started it.
	runtime.LockOSThread()
	o := parse()
	if runtime.GOARCH != "amd64" || os.Getuid() != 0 {
		return 0, fmt.Errorf("needs root, on amd64")
	}
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return 0, fmt.Errorf("finding the checkout: %w", err)
	}
	h := host{top: strings.TrimSpace(string(top)), limit: o.limit, simulated: simulated()}
	h.cache = filepath.Join(h.top, ".cache", "kernels")
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if h.simulated != "" {
		fmt.Fprintf(os.Stderr, "kernels: %s: the processor is simulated, which takes many times as long\n", h.simulated)
	}
	if o.tests {
		return h.test(ctx, o)
	}
	if flag.NArg() == 0 {
		flag.Usage()
		return 2, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	return h.boot(ctx, o.kernel, job{Command: flag.Args(), Dir: dir, Env: os.Environ()}, os.Stdout)
}

// host is the machine that this program runs on.
type host struct {
	top, cache string // the checkout, and where kernels are
	limit      time.Duration
	simulated  string // why KVM is of no use; empty if it is used
}

// simulated returns why KVM is of no use here. Under kvm_pvm, which has /dev/kvm too, Debian's kernels do not start.
func simulated() string {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "/dev/kvm cannot be opened"
	}
	kvm.Close()
	for _, own := range []string{"kvm_intel", "kvm_amd"} {
		if _, err := os.Stat("/sys/module/" + own); err == nil {
			return ""
		}
	}
	return "KVM is not the processor's own here"
}
