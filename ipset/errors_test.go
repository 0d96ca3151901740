package ipset

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestKernelErrorKinds(t *testing.T) {
	tests := []struct {
		name string
		err  KernelError
		kind error // of the constants, or nil
		text string
	}{
		{"busy", KernelError{Code: nl.IPSET_ERR_BUSY}, ErrInUse, "set is in use by a rule or another set (code 4100)"},
		{"referenced", KernelError{Code: nl.IPSET_ERR_REFERENCED}, ErrInUse,
			"set is in use by a rule or another set (code 4108)"},
		{"hash full", KernelError{Code: 4352}, errFull, "set is full (code 4352)"},
		{"list full", KernelError{Code: 4356, List: true}, errFull, "set is full (code 4356)"},
		{"sets full", KernelError{Code: nl.IPSET_ERR_MAX_SETS}, errFull, "the kernel holds no more sets (code 4099)"},
		{"no member", KernelError{Code: 4352, List: true}, errNotFound, "the member set does not exist (code 4352)"},
		{"null", KernelError{Code: 4353}, nil, "the kernel does not store the null element (code 4353)"},
		{"loop", KernelError{Code: 4353, List: true}, nil, "a list of sets cannot hold another one (code 4353)"},
		{"no set", KernelError{Code: uint32(unix.ENOENT)}, errNotFound, "set does not exist (code 2)"},
		{"exists", KernelError{Code: uint32(unix.EEXIST)}, ErrExists, "a different set of that name exists (code 17)"},
		{"no type", KernelError{Code: nl.IPSET_ERR_FIND_TYPE}, ErrUnsupported,
			"set type, family or revision is not supported by the kernel (code 4098)"},
		{"errno", KernelError{Code: uint32(unix.ENOMEM)}, nil, "cannot allocate memory"},
		{"unknown", KernelError{Code: 5000}, nil, "ipset error (code 5000)"},
	}
	kinds := []error{ErrInUse, errNotFound, ErrExists, errFull, ErrUnsupported}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := error(&BatchError{Errors: []*OpError{{Kind: Add, Set: "x", Err: tt.err}}})
			for _, kind := range kinds {
				if got, want := errors.Is(err, kind), kind == tt.kind; got != want {
					t.Errorf("errors.Is(%v) is %t, want %t", kind, got, want)
				}
			}
			if want := "add x: " + tt.text; err.Error() != want {
				t.Errorf("text %q, want %q", err, want)
			}
			if errno := unix.Errno(tt.err.Code); tt.err.Code < 4096 && !errors.Is(err, errno) {
				t.Errorf("errno %v is lost", errno)
			}
		})
	}
}
