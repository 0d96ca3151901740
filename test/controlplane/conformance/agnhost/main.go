// Command agnhost stands before the agnhost of Kubernetes' tests in an image for kernels without SCTP sockets. It
// speaks as much of SCTP as `agnhost porter` and `agnhost connect --protocol=sctp` need, on raw sockets, and leaves all
// else to the program /agnhost-upstream. The packets are real: they pass netfilter and connection tracking like those
// of a kernel.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
)

const (
	// upstream is Kubernetes' agnhost.
	upstream = "/agnhost-upstream"
	// portPrefix begins the names of variables that hold the ports that porter serves.
	portPrefix = "SERVE_SCTP_PORT_"
)

func main() {
	ports, err := servedPorts(os.Environ())
	switch {
	case err != nil:
	case len(os.Args) > 1 && os.Args[1] == "porter" && len(ports) > 0:
		err = serve(context.Background(), ports)
	case len(os.Args) > 1 && os.Args[1] == "connect" && overSCTP(os.Args[2:]):
		os.Exit(connect(os.Args[2:], os.Stderr))
	default:
		err = errors.Wrapf(syscall.Exec(upstream, os.Args, os.Environ()), "starting %s", upstream)
	}
	fmt.Fprintf(os.Stderr, "agnhost: %v\n", err)
	os.Exit(1)
}

// servedPorts returns the ports that an environment asks porter to serve over SCTP.
func servedPorts(environment []string) (map[uint16]bool, error) {
	ports := map[uint16]bool{}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if number, isPort := strings.CutPrefix(name, portPrefix); isPort {
			port, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				return nil, errors.Errorf("%s names no port", name)
			}
			ports[uint16(port)] = true
		}
	}
	return ports, nil
}

// overSCTP reports whether the arguments of connect ask for SCTP.
func overSCTP(args []string) bool {
	protocol := ""
	_ = connectFlags(&protocol, new(time.Duration)).Parse(args) // what upstream's agnhost is to complain of is not SCTP
	return protocol == "sctp"
}

// connectFlags returns the flags of connect that matter here.
func connectFlags(protocol *string, timeout *time.Duration) *flag.FlagSet {
	flags := flag.NewFlagSet("connect", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(protocol, "protocol", "tcp", "")
	flags.DurationVar(timeout, "timeout", 0, "")
	return flags
}

// connect does what `agnhost connect --protocol=sctp` does, prints in agnhost's words what went wrong, and returns the
// exit status.
func connect(args []string, stderr io.Writer) int {
	var protocol string
	var timeout time.Duration
	flags := connectFlags(&protocol, &timeout)
	if err := flags.Parse(args); err != nil {
		fmt.Fprintf(stderr, "UNKNOWN: %v\n", err)
		return 1
	}
	host, number, err := net.SplitHostPort(flags.Arg(0))
	if err != nil {
		fmt.Fprintf(stderr, "UNKNOWN: %v\n", err)
		return 1
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		fmt.Fprintf(stderr, "UNKNOWN: %v\n", err)
		return 1
	}
	err = dial(host, uint16(port), timeout)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, os.ErrDeadlineExceeded):
		fmt.Fprintln(stderr, "TIMEOUT")
	case errors.Is(err, errAborted), errors.Is(err, syscall.ECONNREFUSED):
		fmt.Fprintln(stderr, "REFUSED")
	default:
		fmt.Fprintf(stderr, "OTHER: %v\n", err)
	}
	return 1
}
