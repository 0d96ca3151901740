package ulogd

import (
	"fmt"
	"strings"
)

const (
	// firstPipe is the file descriptor of the first group's pipe in the child. The others follow.
	firstPipe = 4
	// configFile is the path of the child's configuration: an inherited file descriptor, so that nothing is on disk.
	configFile = "/proc/self/fd/3"
	// receiveBuffer bounds the bytes that the kernel holds per group.
	receiveBuffer = 8 << 20
)

// configuration returns ulogd2's configuration file: a stack of plug-ins per group, which writes to its own pipe.
//
// With a threshold of 1 ulogd2 gets every packet at once instead of after 1 s or 100 packets, and one lost message is
// one lost packet. ulogd2 sets the receive buffer only below its maximum; a maximum just above keeps it from being
// doubled later. bind and unbind stay 0: they would change the system's own loggers.
//
// Packets without the mark are reports of other programs. MARK stands after BASE because it accepts the output of BASE
// as it is.
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
		fmt.Fprintf(&b, "netlink_socket_buffer_size=%d\nnetlink_socket_buffer_maxsize=%d\n",
			receiveBuffer, receiveBuffer+1)
		fmt.Fprintf(&b, "netlink_qthreshold=1\n")
		fmt.Fprintf(&b, "\n[pcap%d]\nfile=\"/proc/self/fd/%d\"\nsync=1\n", i, firstPipe+i)
	}
	return b.String()
}
