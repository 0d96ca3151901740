package lab

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// runsDir has, for each network, a directory ID and a file ID.lock, which is locked as long as the process that made
// the network lives. The lock is made first and removed last.
const runsDir = "/run/weave-npc-lab"

// run is what a network owns outside its namespaces: an id that is in all its names, a lock and a directory.
type run struct {
	id   string
	dir  string
	lock *os.File
}

// newRun finds an id that no other run has.
func newRun() (*run, error) {
	if err := os.MkdirAll(runsDir, 0o700); err != nil {
		return nil, errors.Wrapf(err, "making %s", runsDir)
	}
	if err := prepareNetnsDir(); err != nil {
		return nil, err
	}
	made, err := making()
	if err != nil {
		return nil, err
	}
	defer made.Close()
	for range 100 {
		random := make([]byte, 4)
		if _, err := rand.Read(random); err != nil {
			return nil, errors.Wrap(err, "choosing a name")
		}
		id := hex.EncodeToString(random)
		lock, err := os.OpenFile(lockPath(id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, errors.Wrapf(err, "making %s", lockPath(id))
		}
		if held, err := hold(lock); err != nil {
			return nil, err
		} else if !held {
			continue // another process's Cleanup came between
		}
		if _, err = fmt.Fprintf(lock, "%d\n", os.Getpid()); err != nil {
			return nil, errors.Wrapf(err, "writing %s", lock.Name())
		}
		r := newRunOf(id, lock)
		return r, errors.Wrapf(os.Mkdir(r.dir, 0o700), "making %s", r.dir)
	}
	return nil, errors.Errorf("every name tried in %s is taken", runsDir)
}

// making is to be closed when something has been made that a removal has to find.
func making() (*os.File, error) { return lockRuns(unix.LOCK_SH) }

// lockRuns waits until no process holds the directory of all runs in another way.
func lockRuns(how int) (*os.File, error) {
	dir, err := os.Open(runsDir)
	if err != nil {
		return nil, errors.Wrapf(err, "opening %s", runsDir)
	}
	for {
		err = unix.Flock(int(dir.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		dir.Close()
		return nil, errors.Wrapf(err, "locking %s", runsDir)
	}
	return dir, nil
}

func lockPath(id string) string { return filepath.Join(runsDir, id+lockSuffix) }

const lockSuffix = ".lock"

func newRunOf(id string, lock *os.File) *run {
	return &run{id: id, dir: filepath.Join(runsDir, id), lock: lock}
}

// hold takes the lock on a file. It closes the file and returns false if another process has it, or had it and removed
// the file.
func hold(lock *os.File) (bool, error) {
	err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		lock.Close()
		return false, nil
	}
	var status unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(lock.Fd()), &status)
	}
	if err != nil {
		lock.Close()
		return false, errors.Wrapf(err, "locking %s", lock.Name())
	}
	if status.Nlink == 0 {
		lock.Close()
		return false, nil
	}
	return true, nil
}

// remove removes every namespace with the run's id, its directory and, last, its lock.
func (r *run) remove() error {
	names, err := namespaces()
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return runOf(name) != r.id })
	if err := removeNamespaces(names...); err != nil {
		return err
	}
	if err := os.RemoveAll(r.dir); err != nil {
		return errors.Wrapf(err, "removing %s", r.dir)
	}
	if err := os.Remove(lockPath(r.id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Wrapf(err, "removing %s", lockPath(r.id))
	}
	if r.lock == nil {
		return nil
	}
	return errors.Wrapf(r.lock.Close(), "closing %s", r.lock.Name())
}

// namespaces lists the names of all namespaces that a lab made and that are there now.
func namespaces() ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Wrapf(err, "listing %s", netnsDir)
	}
	var names []string
	for _, entry := range entries {
		if runOf(entry.Name()) != "" {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// runOf returns the id in a namespace's name, or "" if the lab did not make that name.
func runOf(namespace string) string {
	rest, made := strings.CutPrefix(namespace, netnsPrefix)
	id, _, named := strings.Cut(rest, "-")
	if raw, err := hex.DecodeString(id); !made || !named || err != nil || len(raw) != 4 {
		return ""
	}
	return id
}

// Cleanup removes what runs that ended without Close left behind: their processes, namespaces and files. It never
// touches a run whose process lives.
func Cleanup() error { return cleanup(abandonedRun) }

// cleanup removes the runs that claim returns; it returns nil for those that must stay.
func cleanup(claim func(id string) (*run, error)) error {
	ids, err := runs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, err := claim(id)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		if err := r.remove(); err != nil {
			return errors.Wrapf(err, "removing what run %s left behind", id)
		}
	}
	return nil
}

// runs lists the ids of all runs that have a lock, a directory or a namespace.
func runs() ([]string, error) {
	names, err := namespaces()
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, name := range names {
		ids[runOf(name)] = true
	}
	entries, err := os.ReadDir(runsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Wrapf(err, "listing %s", runsDir)
	}
	for _, entry := range entries {
		ids[strings.TrimSuffix(entry.Name(), lockSuffix)] = true
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

// abandonedRun returns a run whose process is gone.
func abandonedRun(id string) (*run, error) {
	lock, err := os.OpenFile(lockPath(id), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return newRunOf(id, nil), nil
	}
	if err != nil {
		return nil, errors.Wrapf(err, "opening %s", lockPath(id))
	}
	held, err := hold(lock)
	if err != nil || !held {
		return nil, err
	}
	return newRunOf(id, lock), nil
}

// ownRun returns a run that this process made.
func ownRun(id string) (*run, error) {
	content, err := os.ReadFile(lockPath(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.Wrapf(err, "reading %s", lockPath(id))
	}
	if strings.TrimSpace(string(content)) != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	return newRunOf(id, nil), nil
}

// Main runs a test binary's tests, for TestMain: os.Exit(lab.Main(m)). It cleans up first, and an interrupt (SIGINT,
// SIGTERM, SIGHUP) removes the networks of this process before it ends it.
func Main(m interface{ Run() int }) int {
	launch()
	launchProfiled()
	// With a processor to spare for the goroutines that serve, the kernel shares time out among them and those that
	// ask: Go's scheduler lets goroutines that wait for packets wait for long while all its processors have something
	// to do.
	runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))
	if err := Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer RemoveOnSignal()()
	return m.Run()
}

// RemoveOnSignal makes an interrupt (SIGINT, SIGTERM, SIGHUP) remove the networks of this process and then end it with
// the status that a shell gives such an end. The function it returns undoes that; called during the removal, it does
// not return, so that the process does not end half-way.
func RemoveOnSignal() (undo func()) {
	signals := make(chan os.Signal, 1)
	ended := make(chan struct{})
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	go func() {
		defer close(ended)
		received, open := <-signals
		if !open {
			return
		}
		// The reader of this process's output may have been interrupted too.
		signal.Ignore(unix.SIGPIPE)
		if err := removeOwnRuns(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		number, _ := received.(unix.Signal)
		os.Exit(128 + int(number))
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-ended
	}
}

// removeOwnRuns removes the networks of this process. It waits for what the process is just making. Nothing is made
// from then on.
func removeOwnRuns() error {
	lock, err := lockRuns(unix.LOCK_EX)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A descriptor that nothing closes keeps the lock until the process ends.
	if _, err := unix.FcntlInt(lock.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return errors.Wrap(err, "keeping the lock of all runs")
	}
	return cleanup(ownRun)
}

// killAndWait kills a process, a child or not, and waits until it is gone or only waits to be reaped.
func killAndWait(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return errors.Wrapf(err, "killing process %d", pid)
	}
	for range 500 {
		if !alive(pid) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Errorf("process %d does not end though it was killed", pid)
}

// alive reports whether a process runs; one that is dead but not reaped does not.
func alive(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The command in parentheses may hold anything; the state follows the last one.
	_, state, _ := strings.Cut(string(status[strings.LastIndexByte(string(status), ')'):]), " ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
