package ipset

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrorKind classifies an error; compare with errors.Is.
type ErrorKind string

// Error returns the text of the kind.
func (k ErrorKind) Error() string { return string(k) }

// The kinds of errors. Callers act on the exported ones.
const (
	ErrInUse       ErrorKind = "set is in use by a rule or another set"
	errNotFound    ErrorKind = "set does not exist"
	ErrExists      ErrorKind = "a different set of that name exists"
	errFull        ErrorKind = "full"
	ErrUnsupported ErrorKind = "not supported by the kernel"
)

// Codes of the set types, which overlap: linux/netfilter/ipset/ip_set_hash.h and ip_set_list.h.
const (
	errHashFull    = nl.IPSET_ERR_TYPE_SPECIFIC
	errHashElement = nl.IPSET_ERR_TYPE_SPECIFIC + 1
	errHashProto   = nl.IPSET_ERR_TYPE_SPECIFIC + 2

	errListName = nl.IPSET_ERR_TYPE_SPECIFIC
	errListLoop = nl.IPSET_ERR_TYPE_SPECIFIC + 1
	errListFull = nl.IPSET_ERR_TYPE_SPECIFIC + 4
)

// KernelError is an error code in the kernel's reply.
type KernelError struct {
	Code uint32 // below 4096 an errno, else one of ipset's IPSET_ERR_ codes
	List bool   // whether the set is a list:set: codes from 4352 up depend on the type
}

// Error returns the meaning of the code, followed by the code itself if it is one of ipset's.
func (e KernelError) Error() string {
	if e.Code < nl.IPSET_ERR_PRIVATE && e.kind() == "" {
		return unix.Errno(e.Code).Error()
	}
	return fmt.Sprintf("%s (code %d)", e.text(), e.Code)
}

// text returns the meaning of the code.
func (e KernelError) text() string {
	switch {
	case e.List && e.Code == errListName:
		return "the member set does not exist"
	case e.List && e.Code == errListFull:
		return "set is full"
	case e.List && e.Code == errListLoop:
		return "a list of sets cannot hold another one"
	case !e.List && e.Code == errHashFull:
		return "set is full"
	case !e.List && e.Code == errHashElement:
		return "the kernel does not store the null element"
	case !e.List && e.Code == errHashProto:
		return "invalid protocol"
	}
	switch e.Code {
	case nl.IPSET_ERR_PROTOCOL:
		return "the kernel did not understand the message"
	case nl.IPSET_ERR_FIND_TYPE:
		return "set type, family or revision is not supported by the kernel"
	case nl.IPSET_ERR_MAX_SETS:
		return "the kernel holds no more sets"
	case nl.IPSET_ERR_INVALID_CIDR:
		return "prefix length is not valid here"
	case nl.IPSET_ERR_INVALID_FAMILY:
		return "family is not supported by the set type"
	case nl.IPSET_ERR_IPADDR_IPV4:
		return "an IPv4 address is expected"
	case nl.IPSET_ERR_IPADDR_IPV6:
		return "an IPv6 address is expected"
	case nl.IPSET_ERR_COMMENT:
		return "set was created without comments"
	}
	if kind := e.kind(); kind != "" {
		return kind.Error()
	}
	return "ipset error"
}

// kind returns the class of the code, or "".
func (e KernelError) kind() ErrorKind {
	switch {
	case e.List && e.Code == errListName:
		return errNotFound
	case e.List && e.Code == errListFull, !e.List && e.Code == errHashFull:
		return errFull
	}
	switch e.Code {
	case nl.IPSET_ERR_BUSY, nl.IPSET_ERR_REFERENCED:
		return ErrInUse
	case uint32(unix.ENOENT):
		return errNotFound
	case uint32(unix.EEXIST), nl.IPSET_ERR_EXIST_SETNAME2, nl.IPSET_ERR_TYPE_MISMATCH:
		return ErrExists
	case nl.IPSET_ERR_MAX_SETS:
		return errFull
	case nl.IPSET_ERR_FIND_TYPE, nl.IPSET_ERR_INVALID_FAMILY:
		return ErrUnsupported
	}
	return ""
}

// Is reports whether the error is of the kind target.
func (e KernelError) Is(target error) bool {
	kind, ok := target.(ErrorKind)
	return ok && kind == e.kind()
}

// Unwrap returns the errno, if the code is one.
func (e KernelError) Unwrap() error {
	if e.Code < nl.IPSET_ERR_PRIVATE {
		return unix.Errno(e.Code)
	}
	return nil
}

// OpError describes a failed operation, or the elements of an operation that failed.
type OpError struct {
	Index    int // of the operation in the argument of Apply
	Kind     OpKind
	Set      string    // its name
	Elements []Element // the failed elements; nil if the operation failed as a whole
	Err      error
}

// shown is the maximum number of elements or errors in a message.
const shown = 3

// Error returns the operation, the first failed elements and the reason in one line.
func (e *OpError) Error() string {
	text := e.Kind.String() + " " + printable(e.Set)
	for i, element := range e.Elements {
		if i == shown {
			text += fmt.Sprintf(" and %d more", len(e.Elements)-shown)
			break
		}
		text += " " + element.Entry.String()
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *OpError) Unwrap() error { return e.Err }

// BatchError lists the failures of a batch. Everything else in the batch was applied.
type BatchError struct {
	Errors []*OpError // in the order of the operations; never empty
}

// Error returns the first failures in one line.
func (e *BatchError) Error() string {
	texts := make([]string, 0, shown)
	for _, err := range e.Errors[:min(shown, len(e.Errors))] {
		texts = append(texts, err.Error())
	}
	text := strings.Join(texts, "; ")
	if more := len(e.Errors) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more failures", more)
	}
	return text
}

// Unwrap returns the failures.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, len(e.Errors))
	for i, err := range e.Errors {
		errs[i] = err
	}
	return errs
}
