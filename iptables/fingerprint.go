package iptables

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// getInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO of linux/netfilter_ipv4/ip_tables.h and
// linux/netfilter_ipv6/ip6_tables.h.
const getInfo = 64

// Fingerprint changes when the table changes: while two of them are equal (==), no Read is needed.
//
// Under nft it is the generation of the ruleset, which changes with every change, in any table of either family. Under
// legacy it is the number and size of the table's entries and the offsets of its builtin chains: a change that swaps
// entries of equal size does not show.
type Fingerprint struct {
	// Generation is nft's generation id; 0 under legacy.
	Generation uint32
	// Entries is the number of entries of the legacy table, Size their size in bytes.
	Entries, Size uint32
	// Hooks and Underflows are the offsets, in bytes, of the first rule and of the policy of each builtin chain.
	Hooks, Underflows [5]uint32
}

// Generation returns the generation of the nft ruleset, which changes with every change of it. It sends
// NFT_MSG_GETGEN (linux/netfilter/nf_tables.h).
func Generation() (uint32, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: unix.NFNETLINK_V0})
	replies, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, err
	}
	for _, reply := range replies {
		if len(reply) < nl.SizeofNfgenmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(reply[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, errors.Wrap(err, "reading the reply")
		}
		for _, attr := range attrs {
			if attr.Attr.Type == unix.NFTA_GEN_ID && len(attr.Value) == 4 {
				return binary.BigEndian.Uint32(attr.Value), nil
			}
		}
	}
	return 0, errors.New("the reply holds no generation")
}

// infoReply is struct ipt_getinfo, which is the same as struct ip6t_getinfo.
type infoReply struct {
	name       [32]byte
	validHooks uint32
	hooks      [5]uint32
	underflows [5]uint32
	entries    uint32
	size       uint32
}

// legacyInfo reads the number and size of the entries of the legacy filter table.
func legacyInfo(family Family) (Fingerprint, error) {
	var info infoReply
	copy(info.name[:], "filter")
	if err := getsockopt(family, unsafe.Pointer(&info), unsafe.Sizeof(info)); err != nil {
		return Fingerprint{}, err
	}
	return Fingerprint{Entries: info.entries, Size: info.size, Hooks: info.hooks, Underflows: info.underflows}, nil
}

// getsockopt asks for the ipt_getinfo of a table. Any socket of the family will do.
func getsockopt(family Family, value unsafe.Pointer, size uintptr) error {
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if family == IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	socket, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errors.Wrapf(err, "opening a socket for %s", family)
	}
	defer unix.Close(socket)
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), getInfo,
		uintptr(value), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// probe returns an error if this process cannot use a backend. It creates no table.
func probe(family Family, backend Backend) error {
	var err error
	if backend == NFT {
		_, err = Generation()
	} else {
		// The kernel rejects the wrong size of the reply after it has checked permissions, and before it looks for the
		// table. ENOPROTOOPT: the module is not loaded yet, iptables loads it.
		var tooSmall [1]byte
		err = getsockopt(family, unsafe.Pointer(&tooSmall), unsafe.Sizeof(tooSmall))
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOPROTOOPT) {
			err = nil
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return errDenied{errors.Wrapf(err, "using iptables (%s %s) needs root with CAP_NET_ADMIN and CAP_NET_RAW",
			family, backend)}
	case errors.Is(err, unix.EAFNOSUPPORT):
		return errors.Wrapf(err, "the kernel has no %s", family)
	}
	return noBackendError{errors.Wrapf(err, "the kernel has no %s backend for iptables; try the other one", backend)}
}

// legacyTables returns the names of a family's tables in the legacy backend. It creates none.
func legacyTables(family Family) ([]string, error) {
	name := "ip_tables_names"
	if family == IPv6 {
		name = "ip6_tables_names"
	}
	// thread-self, because /proc/net shows the network namespace of the main thread.
	text, err := os.ReadFile(filepath.Join("/proc/thread-self/net", name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.Wrapf(err, "listing the legacy tables of %s", family)
	}
	return strings.Fields(string(text)), nil
}
