package ulogd

import (
	"fmt"
	"strings"
)

const (
	// firstPipe is the descriptor of the first group's pipe in the child; the others follow.
	firstPipe = 4
	// configFile is where the child finds its configuration: an inherited descriptor, so that nothing is on disk.
	configFile = "/proc/self/fd/3"
	// receiveBuffer is what the kernel may hold for us per group, in bytes.
	receiveBuffer = 8 << 20
)

// configuration renders ulogd2's configuration file: a stack of plug-ins per group, each writing to its own pipe.
//
// A threshold of 1 hands every packet over at once instead of after 1 s
// or 100 packets, and makes one lost message one lost packet. ulogd2 sets the receive buffer only below its maximum;
// a maximum just above keeps it from being doubled later. bind and unbind stay 0: the system's own loggers are not ours.
//
// What lacks the mark is somebody else's report. MARK stands behind BASE, for it takes what comes from there without a word.
func configuration(groups []Group, mark uint32, plugins []string) string {
	var b strings.Builder
	b.WriteString("[global]\nlogfile=\"stdout\"\nloglevel=5\n")
	for _, p := range plugins {
		fmt.Fprintf(&b, "plugin=\"%s\"\n", p)
	}
	for i := range groups {
		fmt.Fprintf(&b, "stack=log%d:NFLOG,base%d:BASE,mark:MARK,pcap%d:PCAP\n", i, i, i)
	}
	fmt.Fprintf(&b, "\n[mark]\nmark=%d\n", mark)
	for i, g := range groups {
		fmt.Fprintf(&b, "\n[log%d]\ngroup=%d\nbind=0\nunbind=0\n", i, g.Number)
		fmt.Fprintf(&b, "netlink_socket_buffer_size=%d\nnetlink_socket_buffer_maxsize=%d\n", receiveBuffer, receiveBuffer+1)
		fmt.Fprintf(&b, "netlink_qthreshold=1\n")
		fmt.Fprintf(&b, "\n[pcap%d]\nfile=\"/proc/self/fd/%d\"\nsync=1\n", i, firstPipe+i)
	}
	return b.String()
}
