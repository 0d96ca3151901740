package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"
	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/budget"
)

// options are the flags as they were given.
type options struct {
	nodeName, metricsAddr, pprofAddr, bridgePort string
	logLevel, logFormat                          string
	countedPorts                                 []uint
	ulogdPcap                                    string
	ulogdPcapSize                                int64
	kubeconfig, manifests                        string
	podInterface                                 string
	podCIDRs                                     []string
	hook, allowAction, gate, backend             string
	maxListSize                                  int
	budget                                       budget.Limits
	nflogGroup                                   uint16
	allowMcast, allowVLAN, legacyNetpol, dryRun  bool
}

func (o *options) register(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&o.nodeName, "node-name", "", "name of this node (default $HOSTNAME)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server (default: the pod's service account)")
	f.StringVar(&o.manifests, "manifests", "", "directory to read namespaces, pods and network policies from, instead of an API server")
	f.StringVar(&o.podInterface, "pod-interface", "", "bridge that the pods of this node are attached to, such as cni0")
	f.StringSliceVar(&o.podCIDRs, "pod-cidr", nil, "ranges of the addresses of this node's pods, where --pod-interface does not tell them (default: the node's spec.podCIDRs)")
	f.StringVar(&o.bridgePort, "bridge-port-name", "vethwe-bridge", "port of the bridge behind which no pods of this node are; ports that are no veth or tap are told without it")
	f.StringVar(&o.hook, "hook", string(npc.HookForward),
		"forward: jump from FORWARD; none: the CNI jumps to WEAVE-NPC and WEAVE-NPC-EGRESS")
	f.StringVar(&o.allowAction, "allow-action", "", "what an allowed packet gets: ACCEPT, or RETURN to let the rest of FORWARD decide too "+
		"(default: ACCEPT; with --manifests RETURN)")
	f.StringVar(&o.gate, "gate", string(npc.GateAuto),
		"packets of unknown addresses that may be those of this node's pods: auto (dropped while an isolated pod may have one), open, closed")
	f.BoolVar(&o.allowMcast, "allow-mcast", true,
		"let all multicast pass, whatever policies say: every host listens to 224.0.0.1 and ff02::1, so any pod of a bridge reaches each "+
			"UDP service of its isolated pods (broadcast is dropped while a pod is isolated for ingress, whatever is given here)")
	f.BoolVar(&o.allowVLAN, "allow-vlan", false,
		"let pods on a bridge send frames with a VLAN tag, which pass no policy (else nftables drops them; what only routers send it drops always)")
	f.IntVar(&o.maxListSize, "max-list-size", 1024, "most namespaces that a list:set holds; more than that, or than 8, are held as one set of their pods")
	o.budget = budget.Default()
	f.Var(&o.budget.Sets, "max-sets",
		"sets that one policy, the policies of one namespace and those of all may need on this node, in each IP family; what needs more isolates and allows nothing")
	f.Var(&o.budget.Rules, "max-rules", "the same of iptables rules")
	f.Var(&o.budget.Entries, "max-entries", "the same of entries that policies themselves have in sets, which are address blocks")
	f.Uint16Var(&o.nflogGroup, "nflog-group", 86, "NFLOG group of packets blocked on ingress; those blocked on egress have the next one")
	f.StringVar(&o.ulogdPcap, "ulogd-pcap", "", "capture file to keep the last reported packets in (and the one before, with .1 behind its name)")
	f.Int64Var(&o.ulogdPcapSize, "ulogd-pcap-size", 64, "MiB that the two files of --ulogd-pcap take at most")
	f.BoolVar(&o.legacyNetpol, "use-legacy-netpol", false, "give policies the meaning that they had in Kubernetes 1.6")
	f.StringVar(&o.backend, "iptables-backend", "", "nft or legacy (default: what the other rules of this node are in)")
	f.StringVar(&o.metricsAddr, "metrics-addr", ":6781", "address to serve metrics and health on; empty for none")
	f.UintSliceVar(&o.countedPorts, "counted-ports", []uint{22, 25, 53, 80, 443, 3306, 5432, 6379, 8080, 8443, 9090, 9200, 27017},
		"destination ports that weavenpc_blocked_connections_total tells apart, at most 100; all others are one")
	f.StringVar(&o.pprofAddr, "pprof-addr", "", "loopback address to serve profiles on (pprof), such as 127.0.0.1:6060; empty for none")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warning or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the transactions that would be applied, and exit")
}

// interfaceName is what the kernel and iptables take as a name of an interface, or the beginning of names.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$|^[A-Za-z0-9._-]{1,14}\+$`)

// maxPcapSize is the most that --ulogd-pcap-size may be, in MiB.
const maxPcapSize = 1 << 20

// config checks the flags and makes them the model's configuration.
func (o *options) config() (npc.Config, error) {
	c := npc.Config{NodeName: o.nodeName, PodInterface: o.podInterface, BridgePort: o.bridgePort, Hook: npc.Hook(o.hook),
		AllowAction: o.action(), Gate: npc.GateMode(o.gate), NFLogGroup: o.nflogGroup, AllowMcast: o.allowMcast,
		MaxListSize: o.maxListSize, LegacyNetpol: o.legacyNetpol, Budget: o.budget}
	if c.NodeName == "" {
		c.NodeName = os.Getenv("HOSTNAME")
	}
	for _, text := range o.podCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return c, errors.Errorf("--pod-cidr: %q is no CIDR such as 10.32.0.0/24", text)
		}
		c.PodRanges = append(c.PodRanges, p.Masked())
	}
	switch {
	case c.NodeName == "":
		return c, errors.New("no node name: give --node-name or set $HOSTNAME")
	case o.kubeconfig != "" && o.manifests != "":
		return c, errors.New("--kubeconfig and --manifests: give one of them")
	case c.Hook != npc.HookForward && c.Hook != npc.HookNone:
		return c, errors.Errorf("--hook: %q is neither forward nor none", o.hook)
	case c.AllowAction != actionAccept && c.AllowAction != actionReturn:
		return c, errors.Errorf("--allow-action: %q is neither ACCEPT nor RETURN", o.allowAction)
	case o.allowAction == actionReturn && c.Hook == npc.HookNone:
		return c, errors.New("--allow-action: RETURN has no effect with --hook none, where the CNI drops what returns: leave it out")
	case c.Gate != npc.GateAuto && c.Gate != npc.GateOpen && c.Gate != npc.GateClosed:
		return c, errors.Errorf("--gate: %q is none of auto, open and closed", o.gate)
	case o.nflogGroup == 0 || o.nflogGroup == 65535:
		return c, errors.Errorf("--nflog-group: %d is not within 1 to 65534", o.nflogGroup)
	case o.ulogdPcapSize < 1 || o.ulogdPcapSize > maxPcapSize:
		return c, errors.Errorf("--ulogd-pcap-size: %d is not within 1 to %d", o.ulogdPcapSize, maxPcapSize)
	case o.maxListSize < 0:
		return c, errors.Errorf("--max-list-size: %d is negative", o.maxListSize)
	case o.bridgePort != "" && !interfaceName.MatchString(o.bridgePort):
		return c, errors.Errorf("--bridge-port-name: %q is no name of an interface", o.bridgePort)
	case o.podInterface != "":
		return c, checkInterface(o.podInterface)
	}
	return c, nil
}

// The values of --allow-action.
const (
	actionAccept = "ACCEPT"
	actionReturn = "RETURN"
)

// action returns what an allowed packet gets. A host without Kubernetes has other owners of its containers' network, such as Docker, whose
// rules further down in FORWARD keep bridges apart: an ACCEPT before them would open what they close.
func (o *options) action() string {
	switch {
	case o.allowAction != "":
		return o.allowAction
	case o.manifests != "":
		return actionReturn
	}
	return actionAccept
}

// checkInterface refuses what packets of pods would never match.
func checkInterface(name string) error {
	if !interfaceName.MatchString(name) {
		return errors.Errorf("--pod-interface: %q is no name of an interface", name)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return errors.Wrap(err, "listing the interfaces of this node")
	}
	prefix, many := strings.CutSuffix(name, "+")
	for _, l := range links {
		a := l.Attrs()
		if (a.Name == name || many && strings.HasPrefix(a.Name, prefix)) && a.MasterIndex != 0 {
			return errors.Errorf("--pod-interface: %s is the port of a bridge, and iptables names bridged packets by "+
				"the bridge: give the bridge's name", a.Name)
		}
	}
	return nil
}

// maxCountedPorts bounds the series of a metric.
const maxCountedPorts = 100

// ports are the destination ports to tell apart.
func (o *options) ports() ([]uint16, error) {
	if len(o.countedPorts) > maxCountedPorts {
		return nil, errors.Errorf("--counted-ports: %d are more than %d", len(o.countedPorts), maxCountedPorts)
	}
	var ports []uint16
	for _, p := range o.countedPorts {
		if p == 0 || p > 65535 {
			return nil, errors.Errorf("--counted-ports: %d is no port", p)
		}
		ports = append(ports, uint16(p))
	}
	return ports, nil
}

// logger logs in the format and from the level that were asked for.
func (o *options) logger(w io.Writer) (*slog.Logger, error) {
	level, err := o.level()
	if err != nil {
		return nil, err
	}
	h := &slog.HandlerOptions{Level: level, ReplaceAttr: inWords}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, h)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, h)), nil
	}
	return nil, errors.Errorf("--log-format: %q is neither text nor json", o.logFormat)
}

// inWords makes errors and what has a name what they say, in JSON as in text: errors printed in full come with the stack that they were made
// on.
func inWords(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case slog.Level, time.Time:
	case error:
		a.Value = slog.StringValue(v.Error())
	case fmt.Stringer:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

// level is the log level that was asked for.
func (o *options) level() (slog.Level, error) {
	switch o.logLevel {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warning":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, errors.Errorf("--log-level: %q is none of debug, info, warning and error", o.logLevel)
}

// checkBackend refuses what is no backend.
func (o *options) checkBackend() error {
	if b := iptables.Backend(o.backend); o.backend != "" && b != iptables.NFT && b != iptables.Legacy {
		return errors.Errorf("--iptables-backend: %q is neither nft nor legacy", o.backend)
	}
	return nil
}
