package relayclient

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/validation"
)

// address is where the replicas of a relay are: behind a Service, or at hosts.
type address struct {
	namespace, service string
	hosts              []string // HOST:PORT; nil behind a Service
}

// parse reads NAMESPACE/SERVICE or HOST:PORT[,HOST:PORT...].
func parse(text string) (address, error) {
	if namespace, service, is := strings.Cut(text, "/"); is {
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(service)) > 0 {
			return address{}, errors.Errorf("%q is neither NAMESPACE/SERVICE nor HOST:PORT", text)
		}
		return address{namespace: namespace, service: service}, nil
	}
	var a address
	for _, one := range strings.Split(text, ",") {
		host, port, err := net.SplitHostPort(strings.TrimSpace(one))
		n, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || bad != nil || n == 0 || host == "" || strings.ContainsAny(host, " @/?#\\\"") {
			return address{}, errors.Errorf("%q is neither NAMESPACE/SERVICE nor HOST:PORT", one)
		}
		if hp := net.JoinHostPort(host, port); !slices.Contains(a.hosts, hp) {
			a.hosts = append(a.hosts, hp)
		}
	}
	return a, nil
}

// serverName returns the name that the certificate of each replica must have; empty if that is the host.
func (a address) serverName() string {
	if a.service == "" {
		return ""
	}
	return a.service + "." + a.namespace + ".svc"
}
