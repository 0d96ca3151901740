package lint

// Level is how grave a finding is.
type Level string

// The levels.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Note    Level = "note"
)

// RuleInfo describes a kind of finding.
type RuleInfo struct {
	// ID is stable: annotations name it.
	ID string
	// Level is that of most findings of the rule.
	Level Level
	// Short is what is wrong, and Help why that matters and what to do.
	Short, Help string
}

// Rules returns all rules, in the order of the documentation.
func Rules() []RuleInfo {
	return []RuleInfo{kindNotEnforced, invalidPolicy, selectsNothing, hostNetwork, peerNoPod, labelTypo, missingNamespace, peersSplit,
		emptyList, allowsAll, rulesIgnored,
		nameSaysEgress, denyOneWay, egressDNS, egressDNSOverTCP, serviceClosed, backendBlocked, backendMissing, portName, portNotOffered, exceptAll, exceptTwice,
		blockOfPods, blockOfServices, ruleCovered, policyCovered,
		ruleUnreachable, samePriority, passInBaseline, nameOfService, wildcardPublic, ignoreUnknown, annotationUnclear}
}

// The rules.
var (
	kindNotEnforced = RuleInfo{"kind-not-enforced", Error,
		"A policy, or what is nearly one, is of a kind that is not enforced.",
		"Nothing is isolated by it. Correct the apiVersion or the kind, or write it as a policy that is enforced."}
	invalidPolicy = RuleInfo{"invalid-policy", Error, "A policy is not enforced as it is written.",
		"It isolates what it selects and allows nothing, or, in a tier, its rules fail closed. " +
			"Correct what the message names."}
	selectsNothing = RuleInfo{"selects-nothing", Warning, "A policy selects no pod.",
		"It does nothing. Compare its selector with the labels of the pods, or remove it."}
	hostNetwork = RuleInfo{"host-network-selected", Note, "A policy selects pods on the network of their node.",
		"Policies do not apply to them: they have the addresses of the node. Protect the node instead."}
	peerNoPod = RuleInfo{"peer-matches-no-pod", Warning, "A peer of a rule matches no pod.",
		"The rule allows or denies nothing by it. A podSelector alone means pods of the policy's own namespace."}
	labelTypo = RuleInfo{"label-typo", Warning,
		"A selector names a label that nothing has, and something has nearly the same.",
		"With notIn a misspelt value matches what was to be left out."}
	missingNamespace = RuleInfo{"missing-namespace", Note, "A policy is in a namespace that does not exist.",
		"It cannot be created, or its namespace comes from elsewhere. " +
			"Not said of default and kube-*, nor where there are no Namespaces at all."}
	peersSplit = RuleInfo{"peers-split", Warning,
		"A namespaceSelector and a podSelector are two peers, and were probably intended as one.",
		"Two items of a list are \"or\": all pods of those namespaces, or those pods of the own namespace. " +
			"For \"and\", remove the dash before the second."}
	emptyList = RuleInfo{"empty-list", Warning, "An empty list of peers or ports means all of them.",
		"from: [] is the same as no from: every source. A rule that is to allow nothing is left out."}
	allowsAll = RuleInfo{"allows-all", Note, "A rule allows everything.",
		"It opens the direction for all that the policy selects, whatever other policies deny."}
	rulesIgnored = RuleInfo{"rules-ignored", Error, "A policy has rules of a direction that its policyTypes do not name.",
		"They have no effect: the direction is not isolated. Add the type, or remove the rules."}
	nameSaysEgress = RuleInfo{"name-says-egress", Warning, "A policy that is named after egress does not isolate egress.",
		"Without policyTypes and without egress rules a policy isolates ingress only. Write policyTypes: [Egress]."}
	denyOneWay = RuleInfo{"deny-one-way", Note, "A namespace has a default deny of ingress and none of egress.",
		"Its pods may open connections to anywhere. Add Egress to the policyTypes if that is not intended."}
	egressDNS = RuleInfo{"egress-forgets-dns", Warning, "Pods may open connections, but ask no DNS server.",
		"Names do not resolve, and addresses of domainNames are not learned. " +
			"Allow udp/53 and tcp/53 to the DNS server. NetworkPolicies never deny one on the node itself."}
	egressDNSOverTCP = RuleInfo{"egress-dns-udp-only", Note, "Pods may ask DNS servers by UDP and not by TCP.",
		"Long answers are asked for again by TCP. Allow tcp/53 too."}
	serviceClosed = RuleInfo{"service-closed", Warning,
		"Policies let no address outside reach a Service that is for clients outside.",
		"Packets from a load balancer have the client's address or a node's, which selectors of pods do not match. " +
			"Allow the port without from, or from an ipBlock."}
	backendBlocked = RuleInfo{"backend-blocked", Warning,
		"Policies keep the controller of an Ingress or HTTPRoute from the pods that it leads to.",
		"The controller is taken to run in another namespace, on the network of nodes or outside, in which case clients " +
			"get errors. Allow the port from the controller's namespace, or from an ipBlock with the nodes."}
	backendMissing = RuleInfo{"backend-missing", Warning,
		"An Ingress or HTTPRoute leads to a Service, or to a port of one, that does not exist.",
		"Clients get errors, whatever the policies allow. Correct the name or the port."}
	portName = RuleInfo{"port-name-unknown", Warning, "A rule names a port that no pod concerned has.",
		"It matches nothing. The name is looked up on the pods that receive: " +
			"those selected for ingress, the peers for egress, with the protocol."}
	portNotOffered = RuleInfo{"port-not-offered", Warning,
		"A rule opens a port that no container of the selected pods declares.",
		"The declaration of ports is for information, so that this may be right."}
	exceptAll = RuleInfo{"except-all", Error, "An ipBlock excepts all of itself.",
		"It matches no address. Remove the block, or what is too much in except."}
	exceptTwice = RuleInfo{"except-twice", Note, "An ipBlock excepts the same addresses twice.",
		"Remove the smaller range."}
	blockOfPods = RuleInfo{"block-of-pods", Warning, "An ipBlock is about addresses of pods.",
		"Pods get other addresses. Select them by labels."}
	blockOfServices = RuleInfo{"block-of-services", Warning, "An ipBlock is about ClusterIPs of Services.",
		"Packets to a ClusterIP have the address of an endpoint when policies are evaluated, and none comes from a " +
			"ClusterIP. Select the pods by labels."}
	ruleCovered = RuleInfo{"rule-covered", Note, "Other rules allow all that a rule allows.",
		"Removing it changes no verdict, also for pods to come."}
	policyCovered = RuleInfo{"policy-covered", Note, "Other policies isolate and allow all that a policy does.",
		"Removing it changes no verdict, also for pods to come."}
	ruleUnreachable = RuleInfo{"rule-unreachable", Warning,
		"Rules that come first in the tier decide about all that a rule matches.",
		"It never decides. Move it forward, or remove it."}
	samePriority = RuleInfo{"same-priority", Warning,
		"Two policies of a tier have the same priority and contradict each other.",
		"Which one is asked first is not defined; here it is the first by name. Give them different priorities."}
	passInBaseline = RuleInfo{"pass-in-baseline", Note, "A rule of the Baseline tier passes.",
		"No tier comes after it: the rule allows, as Accept does."}
	nameOfService = RuleInfo{"name-of-service", Warning, "A domain name is that of a Service.",
		"Packets to a ClusterIP have a pod's address when policies are evaluated, which no answer has. " +
			"Select the Service's pods by labels. Names of headless Services do match."}
	wildcardPublic = RuleInfo{"wildcard-public-suffix", Note, "A domain name stands for names that anybody may have.",
		"Whoever registers a name, or rents a bucket or a host, below a public suffix can be reached by it. " +
			"Write the names that are needed, or a domain of their owner."}
	ignoreUnknown = RuleInfo{"ignore-unknown", Warning, "An annotation silences a rule that does not exist.",
		"Nothing is silenced by it. The rules are listed in the documentation."}
	annotationUnclear = RuleInfo{"annotation-unclear", Warning,
		"An annotation about staging does not do what it seems to.",
		"Nodes enforce the policy, or ignore it in its group. Write \"true\" or the name of a group."}
)
