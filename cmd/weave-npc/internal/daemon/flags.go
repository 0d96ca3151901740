package daemon

import (
	"math/bits"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli/sharedflags"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/relayclient"
)

// options are the values of the daemon's flags.
type options struct {
	nodeName, metricsAddr, pprofAddr, bridgePort string
	logLevel, logFormat                          string
	countedPorts                                 []uint
	ulogdPcap                                    string
	ulogdPcapSize                                int64
	kubeconfig, manifests                        string
	podInterface                                 string
	podCIDRs, helpers                            []string
	forwardJump                                  bool
	allowAction, failClosed, backend             string
	established, terminateMark                   string
	maxListSize                                  int
	budget                                       quota.Limits
	nflogGroup                                   uint16
	allowMcast, allowVLAN, legacyNetpol, dryRun  bool
	flows                                        bool
	flowsRecords                                 int
	flowsDir, flowsSocket                        string
	staged, stagedManifests                      string
	bindSources                                  string
	bindAudit                                    time.Duration
	bindPrefixes, routingNamespaces              []string
	allowEtherTypes                              []string
	dns                                          dnsOptions
	relay                                        relayclient.Config
}

// defaults returns the values of flags that are not given.
func defaults() *options {
	return &options{
		bridgePort:    "vethwe-bridge",
		forwardJump:   true,
		failClosed:    string(enforce.FailClosedAuto),
		established:   establishedKeep,
		terminateMark: "0x2000",
		allowMcast:    true,
		bindSources:   bindOn,
		bindAudit:     10 * time.Minute,
		maxListSize:   sharedflags.DefaultMaxListSize,
		budget:        quota.Default(),
		nflogGroup:    86,
		dns:           dnsOptions{queue: 86, clusterDomain: "cluster.local", grace: time.Minute},
		ulogdPcapSize: 64,
		metricsAddr:   ":6781",
		countedPorts:  []uint{22, 25, 53, 80, 443, 3306, 5432, 6379, 8080, 8443, 9090, 9200, 27017},
		logLevel:      "info",
		logFormat:     "text",
		flowsRecords:  20000,
		flowsSocket:   sharedflags.DefaultFlowsSocket,
		staged:        string(staged.Off),
		relay: relayclient.Config{CA: "/etc/weave-npc-relay/ca.crt",
			Token: "/run/secrets/weave-npc-relay/token", Jitter: 30 * time.Second},
	}
}

// register registers the flags with the present values as defaults.
func (o *options) register(f *pflag.FlagSet) {
	f.SortFlags = false
	sharedflags.NodeName(f, &o.nodeName)
	f.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"kubeconfig file for the API server (default: the pod's service account)")
	registerManifests(f, &o.manifests)
	o.registerRelay(f)
	o.registerEnforcement(f)
	o.registerBinding(f)
	o.dns.register(f)
	o.registerBudget(f)
	f.Uint16Var(&o.nflogGroup, "nflog-group", o.nflogGroup,
		"NFLOG group of packets blocked on ingress; the next one is for egress, the one after it for answers of resolvers")
	f.StringVar(&o.ulogdPcap, "ulogd-pcap", o.ulogdPcap,
		"capture file for the last reported packets (the file before it has .1 after its name)")
	f.Int64Var(&o.ulogdPcapSize, "ulogd-pcap-size", o.ulogdPcapSize,
		"maximum size of the two files of --ulogd-pcap together, in MiB")
	o.registerFlows(f)
	registerStaged(f, &o.staged, &o.stagedManifests)
	sharedflags.LegacyNetpol(f, &o.legacyNetpol)
	sharedflags.Backend(f, &o.backend)
	f.StringVar(&o.metricsAddr, "metrics-addr", o.metricsAddr, "address to serve metrics and health on; empty for none")
	f.UintSliceVar(&o.countedPorts, "counted-ports", o.countedPorts,
		"destination ports with a label value of their own in weavenpc_blocked_connections_total, at most 100; "+
			"all others share one")
	f.StringVar(&o.pprofAddr, "pprof-addr", o.pprofAddr,
		"loopback address to serve profiles on (pprof), such as 127.0.0.1:6060; empty for none")
	f.StringVar(&o.logLevel, "log-level", o.logLevel, "debug, info, warning or error")
	f.StringVar(&o.logFormat, "log-format", o.logFormat, "text or json")
	f.BoolVar(&o.dryRun, "dry-run", o.dryRun, "print the transactions that would be applied, and exit")
	o.registerCompletion(f)
}

// registerEnforcement registers the flags about the pods of the node and the treatment of their packets.
func (o *options) registerEnforcement(f *pflag.FlagSet) {
	f.StringVar(&o.podInterface, "pod-interface", o.podInterface,
		"bridge that the pods of this node are attached to, such as cni0")
	f.StringSliceVar(&o.podCIDRs, "pod-cidr", o.podCIDRs,
		"address ranges of this node's pods, where --pod-interface does not identify them "+
			"(default: the node's spec.podCIDRs)")
	f.StringVar(&o.bridgePort, "bridge-port-name", o.bridgePort,
		"port of the bridge that leads to no pods of this node; "+
			"ports other than veth and tap are recognized without it")
	f.BoolVar(&o.forwardJump, "forward-jump", o.forwardJump,
		"jump to the chains of weave-npc from FORWARD; if false, the CNI jumps to WEAVE-NPC and WEAVE-NPC-EGRESS")
	f.StringVar(&o.allowAction, "allow-action", o.allowAction,
		"verdict on allowed packets: ACCEPT, or RETURN to let the rest of FORWARD decide too "+
			"(default: ACCEPT; with --manifests RETURN)")
	f.StringVar(&o.failClosed, "fail-closed", o.failClosed,
		"packets from or to unknown addresses that may belong to pods of this node: "+
			"auto (dropped while an isolated pod may have one), never, always")
	f.StringVar(&o.established, "established", o.established,
		"open connections that a change of policies, labels, namespaces or Nodes denies: keep, "+
			"or terminate (both ends of a TCP connection are reset when they send something; others fall silent)")
	f.StringVar(&o.terminateMark, "terminate-mark", o.terminateMark,
		"bit of the connection mark that terminated connections have; no other program of this node may use it")
	f.BoolVar(&o.allowMcast, "allow-mcast", o.allowMcast,
		"let all multicast pass, regardless of policies: every host listens to 224.0.0.1 and ff02::1, "+
			"so any pod of a bridge reaches each UDP service of its isolated pods "+
			"(broadcast is always dropped while a pod is isolated for ingress)")
	f.StringSliceVar(&o.helpers, "allow-helpers", o.helpers,
		"helpers of conntrack, such as ftp or tftp, whose expected connections pass: a pod with an allowed "+
			"connection to such a server then opens any port of either end (without: they are evaluated like others)")
	f.BoolVar(&o.allowVLAN, "allow-vlan", o.allowVLAN,
		"let pods on a bridge send frames with a VLAN tag, which bypass policies "+
			"(otherwise nftables drops them; frames that only routers send are always dropped)")
}

// registerBudget registers the limits on sets and rules.
func (o *options) registerBudget(f *pflag.FlagSet) {
	f.IntVar(&o.maxListSize, "max-list-size", o.maxListSize,
		"maximum number of namespaces in a list:set; "+
			"where a selector matches more namespaces than that, or more than 8, its pods are in one set")
	f.Var(&o.budget.Sets, "max-sets",
		"maximum number of sets on this node, in each IP family, for one policy, for the policies of one namespace "+
			"and for all policies; a policy beyond it isolates its pods and allows nothing")
	f.Var(&o.budget.Rules, "max-rules", "the same limits for iptables rules")
	f.Var(&o.budget.Entries, "max-entries",
		"the same limits for set entries: address blocks, and pods in the sets that policies ask for. "+
			"Pods count if all may be more than a namespace's limit, once for policies that share a set")
}

// registerRelay registers the flags about the relay.
func (o *options) registerRelay(f *pflag.FlagSet) {
	f.StringVar(&o.relay.Address, "relay", o.relay.Address,
		"relay to read namespaces, pods, policies and nodes from instead of the API server, which is read "+
			"when the relay fails: NAMESPACE/SERVICE, or HOST:PORT of each replica with commas between (default: none)")
	f.StringVar(&o.relay.CA, "relay-ca", o.relay.CA,
		"file of certificates (PEM) that may have signed the relay's; read again for each connection")
	f.StringVar(&o.relay.Token, "relay-token", o.relay.Token,
		"file with the token for the relay, of the audience weave-npc-relay; read again for each request")
	f.DurationVar(&o.relay.Jitter, "relay-jitter", o.relay.Jitter,
		"time over which the agents of a cluster spread what they would all do at once after an outage "+
			"of the relay: to list again, and to return to it")
	cli.File(f, "relay-ca")
	cli.File(f, "relay-token")
}

// registerFlows registers the flags about recorded connections.
func (o *options) registerFlows(f *pflag.FlagSet) {
	f.BoolVar(&o.flows, "record-flows", o.flows,
		"record which connections are opened from and to pods of this node, for weave-npc flows")
	f.IntVar(&o.flowsRecords, "flows-records", o.flowsRecords,
		"maximum number of records, one for all connections from a workload to another one and one port; the oldest go")
	f.StringVar(&o.flowsDir, "flows-dir", o.flowsDir,
		"directory to keep records in over a restart, at most 2 KiB each (default: they are only in memory)")
	cli.Directory(f, "flows-dir")
	sharedflags.FlowsSocket(f, &o.flowsSocket)
}

// registerCompletion records which values the flags take.
func (o *options) registerCompletion(f *pflag.FlagSet) {
	cli.File(f, "kubeconfig")
	cli.File(f, "ulogd-pcap")
	cli.Values(f, "allow-action", actionAccept, actionReturn)
	cli.Values(f, "fail-closed", string(enforce.FailClosedAuto), string(enforce.FailClosedNever),
		string(enforce.FailClosedAlways))
	cli.Values(f, "established", establishedKeep, establishedTerminate)
	cli.Values(f, "bind-sources", bindOn, bindAudit, bindOff)
	cli.Values(f, "log-level", logLevels()...)
	cli.Values(f, "log-format", logFormats()...)
}

func registerStaged(f *pflag.FlagSet, mode, manifests *string) {
	f.StringVar(mode, "staged", *mode,
		"which policies that are annotated weave-npc/staged are evaluated, but not enforced: off (none), "+
			"namespaces (NetworkPolicies) or all; with --record-flows, connections that they would decide otherwise "+
			"are reported")
	f.StringVar(manifests, "staged-manifests", *manifests,
		"directory of manifests whose policies are all staged")
	cli.Directory(f, "staged-manifests")
}

func registerManifests(f *pflag.FlagSet, directory *string) {
	f.StringVar(directory, "manifests", *directory,
		"directory to read namespaces, pods and network policies from, instead of an API server")
	cli.Directory(f, "manifests")
}

// interfaceName matches what the kernel and iptables accept as the name of an interface, or as a prefix of names
// followed by +.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$|^[A-Za-z0-9._-]{1,14}\+$`)

// maxPcapSize is the maximum of --ulogd-pcap-size, in MiB.
const maxPcapSize = 1 << 20

// maxFlowsRecords is the maximum of --flows-records, which take about 1 KiB of memory each.
const maxFlowsRecords = 1 << 20

// config validates the flags and returns the model's configuration.
func (o *options) config() (enforce.Config, error) {
	c := enforce.Config{PodInterface: o.podInterface, BridgePort: o.bridgePort, ForwardJump: o.forwardJump,
		AllowAction: o.action(), FailClosed: enforce.FailClosedMode(o.failClosed), NFLogGroup: o.nflogGroup,
		AllowMcast: o.allowMcast, Helpers: o.helpers, MaxListSize: o.maxListSize, LegacyNetpol: o.legacyNetpol, Budget: o.budget}
	var err error
	if c.NodeName, err = sharedflags.ResolveNodeName(o.nodeName); err != nil {
		return c, err
	}
	if c.PodRanges, err = parsePrefixes("--pod-cidr", o.podCIDRs, "10.32.0.0/24"); err != nil {
		return c, err
	}
	if err := o.checkHelpers(); err != nil {
		return c, err
	}
	bit, err := o.terminateBit()
	c.TerminateMark, c.LateMark = o.marks(bit)
	switch {
	case err != nil:
		return c, err
	case o.established != establishedKeep && o.established != establishedTerminate:
		return c, errors.Errorf("--established: %q is neither keep nor terminate", o.established)
	case o.kubeconfig != "" && o.manifests != "":
		return c, errors.New("--kubeconfig and --manifests: give one of them")
	case c.AllowAction != actionAccept && c.AllowAction != actionReturn:
		return c, errors.Errorf("--allow-action: %q is neither ACCEPT nor RETURN", o.allowAction)
	case o.allowAction == actionReturn && !c.ForwardJump:
		return c, errors.New("--allow-action: RETURN has no effect with --forward-jump=false, " +
			"where the CNI drops what returns: leave it out")
	case c.FailClosed != enforce.FailClosedAuto && c.FailClosed != enforce.FailClosedNever &&
		c.FailClosed != enforce.FailClosedAlways:
		return c, errors.Errorf("--fail-closed: %q is none of auto, never and always", o.failClosed)
	case o.nflogGroup == 0 || o.nflogGroup > 65533:
		return c, errors.Errorf("--nflog-group: %d is not within 1 to 65533", o.nflogGroup)
	case o.ulogdPcapSize < 1 || o.ulogdPcapSize > maxPcapSize:
		return c, errors.Errorf("--ulogd-pcap-size: %d is not within 1 to %d", o.ulogdPcapSize, maxPcapSize)
	case o.flowsRecords < 1 || o.flowsRecords > maxFlowsRecords:
		return c, errors.Errorf("--flows-records: %d is not within 1 to %d", o.flowsRecords, maxFlowsRecords)
	case !o.flows && o.flowsDir != "":
		return c, errors.New("--flows-dir: nothing is recorded without --record-flows")
	case !slices.Contains(staged.Modes[:], staged.Mode(o.staged)):
		return c, errors.Errorf("--staged: %q is none of off, namespaces and all", o.staged)
	case !o.flows && staged.Mode(o.staged) != staged.Off:
		return c, errors.New("--staged: policies are evaluated for recorded connections, " +
			"and nothing is recorded without --record-flows")
	case o.stagedManifests != "" && staged.Mode(o.staged) == staged.Off:
		return c, errors.New("--staged-manifests: nothing is staged without --staged=namespaces or all")
	case o.maxListSize < 0:
		return c, errors.Errorf("--max-list-size: %d is negative", o.maxListSize)
	case o.bridgePort != "" && !interfaceName.MatchString(o.bridgePort):
		return c, errors.Errorf("--bridge-port-name: %q is no name of an interface", o.bridgePort)
	case o.podInterface != "" && !interfaceName.MatchString(o.podInterface):
		return c, errors.Errorf("--pod-interface: %q is no name of an interface", o.podInterface)
	case o.podInterface != "":
		if err := host.CheckPodInterface(o.podInterface); err != nil {
			return c, errors.Wrap(err, "--pod-interface")
		}
	}
	err = o.dns.config(&c)
	return c, err
}

// parsePrefixes returns the prefixes that a flag has. The error names the flag, and an example.
func parsePrefixes(flag string, texts []string, example string) (ranges []netip.Prefix, err error) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, errors.Errorf("%s: %q is no CIDR such as %s", flag, text, example)
		}
		ranges = append(ranges, p.Masked())
	}
	return ranges, nil
}

// maxHelpers bounds the rules that each packet meets which opens a connection. The kernel has ten helpers.
const maxHelpers = 16

// helperName matches what the kernel takes as the name of a helper.
var helperName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$`)

// checkHelpers validates --allow-helpers.
func (o *options) checkHelpers() error {
	if len(o.helpers) > maxHelpers {
		return errors.Errorf("--allow-helpers: %d are more than %d", len(o.helpers), maxHelpers)
	}
	for _, name := range o.helpers {
		if !helperName.MatchString(name) || strings.HasPrefix(name, "-") {
			return errors.Errorf("--allow-helpers: %q is no name of a helper such as ftp", name)
		}
	}
	return nil
}

// marks returns the bit of --terminate-mark for all connections that a change denies, or for those that began before
// their pod was known.
func (o *options) marks(bit uint32) (terminate, late uint32) {
	switch {
	case o.established == establishedTerminate:
		return bit, 0
	case o.failClosed == string(enforce.FailClosedNever):
		return 0, 0
	}
	return 0, bit
}

// terminateBit returns the bit of --terminate-mark.
func (o *options) terminateBit() (uint32, error) {
	bit, err := strconv.ParseUint(o.terminateMark, 0, 32)
	if err != nil || bits.OnesCount64(bit) != 1 {
		return 0, errors.Errorf("--terminate-mark: %q is no single bit such as 0x2000", o.terminateMark)
	}
	return uint32(bit), nil
}

// The values of --established.
const (
	establishedKeep      = "keep"
	establishedTerminate = "terminate"
)

// The values of --allow-action.
const (
	actionAccept = "ACCEPT"
	actionReturn = "RETURN"
)

// action returns the verdict on allowed packets. On a host without Kubernetes, another program owns the network of
// containers, such as Docker, whose rules further down in FORWARD separate bridges: an ACCEPT before those rules would
// connect the bridges.
func (o *options) action() string {
	switch {
	case o.allowAction != "":
		return o.allowAction
	case o.manifests != "":
		return actionReturn
	}
	return actionAccept
}

// maxCountedPorts bounds the number of series of a metric.
const maxCountedPorts = 100

// ports returns the destination ports to count separately.
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
