package lab

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// DefaultProfile is the seccomp profile that container runtimes of Debian and Ubuntu use unless they are configured
// otherwise (package golang-github-containers-common). That of containerd and Docker differs in few calls.
const DefaultProfile = "/usr/share/containers/seccomp.json"

// profileVariable holds the path of the profile that this program installs when ProfileWrap starts it.
const profileVariable = "WEAVE_NPC_TEST_SECCOMP"

// ProfileWrap returns what runs a command, as the arguments that follow, under a seccomp profile as it is for given
// capabilities. The program that calls it must run Main first of all.
func ProfileWrap(path string, capabilities ...string) ([]string, error) {
	filter, err := compileProfile(path, capabilities)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(filter)
	if err != nil {
		return nil, errors.Wrap(err, "writing a filter down")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, errors.Wrap(err, "finding this program")
	}
	return []string{"env", profileVariable + "=" + string(text), self}, nil
}

// launchProfiled becomes a command under a profile, if that is what this process was started for.
func launchProfiled() {
	text, ok := os.LookupEnv(profileVariable)
	if !ok {
		return
	}
	runtime.LockOSThread()
	var filter []unix.SockFilter
	err := json.Unmarshal([]byte(text), &filter)
	if err == nil {
		err = os.Unsetenv(profileVariable)
	}
	path := ""
	if err == nil {
		path, err = exec.LookPath(os.Args[1])
	}
	if err == nil {
		err = installFilter(filter, 0)
	}
	if err == nil {
		err = unix.Exec(path, os.Args[1:], os.Environ())
	}
	launchFailed(os.Args[1], err)
}

// profile is a seccomp profile, as Docker, containerd and Podman have them.
type profile struct {
	DefaultAction   string
	DefaultErrnoRet uint32
	Syscalls        []profileRule
}

type profileRule struct {
	Names    []string
	Action   string
	ErrnoRet uint32
	Args     []struct {
		Index           uint32
		Value, ValueTwo uint64
		Op              string
	}
	Includes, Excludes struct {
		Caps, Arches []string
	}
}

// applies reports whether the rule counts for a process with capabilities, on this machine.
func (r profileRule) applies(capabilities []string) bool {
	has := func(c string) bool { return slices.Contains(capabilities, c) }
	here := func(arch string) bool { return arch == runtime.GOARCH }
	return !slices.ContainsFunc(r.Includes.Caps, func(c string) bool { return !has(c) }) &&
		(len(r.Includes.Arches) == 0 || slices.ContainsFunc(r.Includes.Arches, here)) &&
		!slices.ContainsFunc(r.Excludes.Caps, has) && !slices.ContainsFunc(r.Excludes.Arches, here)
}

// compileProfile makes a filter of a profile.
func compileProfile(path string, capabilities []string) ([]unix.SockFilter, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Wrap(err, "reading a seccomp profile")
	}
	var p profile
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, errors.Wrapf(err, "reading seccomp profile %s", path)
	}
	numbers, err := callNumbers()
	if err != nil {
		return nil, err
	}
	filter := []unix.SockFilter{loadData(callNumber)}
	for _, r := range p.Syscalls {
		if !r.applies(capabilities) {
			continue
		}
		for _, name := range r.Names {
			if number, ok := numbers[strings.ToUpper(name)]; ok { // else this machine has no such call
				filter = append(filter, r.compile(number)...)
			}
		}
	}
	return append(filter, action(p.DefaultAction, p.DefaultErrnoRet)), nil
}

// compile makes instructions that end the filter if a call is the rule's, and otherwise leave the call's number loaded.
func (r profileRule) compile(number uint32) []unix.SockFilter {
	end := action(r.Action, r.ErrnoRet)
	if len(r.Args) == 0 {
		return []unix.SockFilter{unless(unix.BPF_JEQ, number, 1), end}
	}
	var tests []unix.SockFilter
	for i := len(r.Args) - 1; i >= 0; i-- {
		a := r.Args[i]
		skip := uint8(len(tests) + 1) // to behind the end
		test := []unix.SockFilter{loadData(firstArgument + 8*a.Index)}
		switch a.Op {
		case "SCMP_CMP_MASKED_EQ":
			test = append(test, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: uint32(a.Value)},
				unless(unix.BPF_JEQ, uint32(a.ValueTwo), skip))
		case "SCMP_CMP_NE":
			test = append(test,
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(a.Value), Jt: skip})
		default:
			test = append(test, unless(unix.BPF_JEQ, uint32(a.Value), skip))
		}
		tests = append(test, tests...)
	}
	tests = append(tests, end, loadData(callNumber))
	return append([]unix.SockFilter{unless(unix.BPF_JEQ, number, uint8(len(tests)))}, tests...)
}

func action(name string, errno uint32) unix.SockFilter {
	if name == "SCMP_ACT_ALLOW" {
		return endFilter(unix.SECCOMP_RET_ALLOW)
	}
	return endFilter(unix.SECCOMP_RET_ERRNO | errno)
}

// callNumbers returns the system calls of this machine by name, in upper case, as package unix has them.
func callNumbers() (map[string]uint32, error) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		return nil, errors.Wrap(err, "finding the source of package unix")
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+runtime.GOARCH+".go"))
	if err != nil {
		return nil, errors.Wrap(err, "reading the numbers of system calls")
	}
	numbers := map[string]uint32{}
	for _, m := range regexp.MustCompile(`\bSYS_(\w+)\s*=\s*(\d+)`).FindAllStringSubmatch(string(source), -1) {
		n, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			return nil, errors.Wrapf(err, "number of %s", m[1])
		}
		numbers[m[1]] = uint32(n)
	}
	return numbers, nil
}
