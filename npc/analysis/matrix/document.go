package matrix

// document is what the page's script reads. Its fields have short names, for there are many of them. What has many
// equals is in a list once, and is intended by its number in the list; -1 is none.
type document struct {
	// Port is the service that is shown first, empty for all ports.
	Port string `json:"port"`
	// Level is how far rows and columns are unfolded first: 0 namespaces, 1 kinds of pods, 2 pods.
	Level int `json:"level"`
	// Either is the namespace that one of the ends is in; empty for all.
	Either string `json:"either"`
	// Origin is what was read, and when.
	Origin     string          `json:"origin,omitempty"`
	Services   []service       `json:"services"`
	Namespaces []namespace     `json:"namespaces"`
	Selectors  []*selector     `json:"selectors"`
	Peers      []peer          `json:"peers"`
	Ports      []port          `json:"ports"`
	Policies   []networkPolicy `json:"policies"`
	Cluster    []clusterPolicy `json:"cluster"`
	Subjects   []*subject      `json:"subjects"`
	Classes    []class         `json:"classes"`
	Alone      []alone         `json:"alone"`
	Rows       []row           `json:"rows"`
}

// service is a protocol and ranges of its ports that all policies treat alike.
type service struct {
	Protocol uint8 `json:"p"`
	// Ranges are the first and last ports, none if the protocol has no ports.
	Ranges [][2]uint16 `json:"r,omitempty"`
	Text   string      `json:"t"`
	// Asked is its first port as the reasons name it.
	Asked string `json:"a"`
}

// namespace has those of its labels that policies ask for. Known is false if it has no object.
type namespace struct {
	Name   string            `json:"n"`
	Known  bool              `json:"k"`
	Labels map[string]string `json:"l,omitempty"`
}

// selector is the requirements of a label selector.
type selector struct {
	// Nothing is set if it requires a value that no label can have.
	Nothing  bool          `json:"x,omitempty"`
	Requires []requirement `json:"r,omitempty"`
}

// requirement is one of a selector, with its text.
type requirement struct {
	Key      string   `json:"k"`
	Operator string   `json:"o"`
	Values   []string `json:"v,omitempty"`
	Text     string   `json:"t"`
}

// peer is a peer of a rule. One of an unknown kind has no fields.
type peer struct {
	Block  string   `json:"b,omitempty"`
	Except []string `json:"x,omitempty"`
	// Nodes, Namespaces and Pods are selectors.
	Nodes *int `json:"o,omitempty"`
	// Name is a domain name, or a pattern of them.
	Name       string `json:"d,omitempty"`
	Namespaces *int   `json:"s,omitempty"`
	Pods       *int   `json:"p,omitempty"`
	// Own is the policy's namespace.
	Own string `json:"n,omitempty"`
}

// port is an item of a rule's ports.
type port struct {
	Protocol uint8  `json:"p"`
	First    uint16 `json:"f,omitempty"`
	Last     uint16 `json:"l,omitempty"`
	Name     string `json:"n,omitempty"`
	Text     string `json:"t"`
}

// numberedRule holds the numbers of its peers and ports.
type numberedRule struct {
	Peers []int `json:"e,omitempty"`
	Ports []int `json:"p,omitempty"`
}

// networkPolicy is a NetworkPolicy with its rules of each direction.
type networkPolicy struct {
	Key     string            `json:"k"`
	Invalid string            `json:"x,omitempty"`
	Rules   [2][]numberedRule `json:"r"`
}

// clusterPolicy is a ClusterNetworkPolicy.
type clusterPolicy struct {
	Name     string           `json:"k"`
	Tier     string           `json:"t"`
	Priority int32            `json:"y"`
	Rules    [2][]orderedRule `json:"r"`
}

// orderedRule is a rule of a ClusterNetworkPolicy.
type orderedRule struct {
	numberedRule
	Action string `json:"a"`
	// Name is the name of the rule as sentences have it, after its number.
	Name    string `json:"n,omitempty"`
	Invalid string `json:"x,omitempty"`
}

// subject is what policies see of pods, and what they decide of them.
type subject struct {
	// Pod is set for what stands for one pod.
	Pod       string            `json:"n,omitempty"`
	Namespace int               `json:"s"`
	Node      int               `json:"o"`
	Labels    map[string]string `json:"l,omitempty"`
	Ports     []port            `json:"p,omitempty"`
	// Choose holds for each direction which policies choose the pods.
	Choose [2]choice `json:"c"`
}

// choice is the policies that select pods in a direction, in evaluation order.
type choice struct {
	Isolated bool  `json:"i,omitempty"`
	Policies []int `json:"p,omitempty"`
	Admin    []int `json:"a,omitempty"`
	Baseline []int `json:"b,omitempty"`
}

// class is pods that get the same verdicts. Subject is -1 for an address.
type class struct {
	Subject int `json:"s"`
	// Pod is the first pod of a class that has an end which is alone.
	Pod   string   `json:"n,omitempty"`
	Addrs []string `json:"a"`
	// Stands is the domain name that the address stands for, or what else it is called. Of other addresses it is not
	// known which names they have.
	Stands string `json:"d,omitempty"`
	// Nodes holds for an address that a Node's status has, by its number, the Nodes and their labels.
	Nodes map[int][]node `json:"o,omitempty"`
}

// alone is an end whose verdicts depend on the enforcing node, or on other pods.
type alone struct {
	Class int `json:"c"`
	End   int `json:"e"`
	// Multicast is set for such an address.
	Multicast bool `json:"m,omitempty"`
	// Own holds for each direction the subject whose policies apply to the end.
	Own [2]own `json:"w"`
	// Owner is the subject that owns the address, Owners the same as some nodes see it; At are the nodes that have the
	// address themselves.
	Owner  int         `json:"r"`
	Owners map[int]int `json:"rs,omitempty"`
	At     []int       `json:"at,omitempty"`
}

// own is the subject whose policies apply to an end, and what contradicts that the end belongs to it.
type own struct {
	Subject  int    `json:"s"`
	Conflict string `json:"c,omitempty"`
	// Closed is why nothing is allowed, ClosedToNode why nothing is to the pod's own node; usually empty.
	Closed       string `json:"x,omitempty"`
	ClosedToNode string `json:"xn,omitempty"`
}

type node struct {
	Name   string            `json:"n"`
	Labels map[string]string `json:"l,omitempty"`
}

// row is a row or a column: pods of a class, or an address.
type row struct {
	Name string `json:"n"`
	// Namespace is isAddress or isName if there are no pods.
	Namespace int `json:"s"`
	Class     int `json:"c"`
	// Axes has bit 1 for a row and bit 2 for a column.
	Axes int `json:"x"`
	// Prefix begins the names of all its pods, Pods are how they go on, and Addrs their addresses: as many for each as
	// the class has.
	Prefix string   `json:"p,omitempty"`
	Pods   []string `json:"d,omitempty"`
	Addrs  []string `json:"a,omitempty"`
	// Other is how the name of another pod goes on, if one pod stands for all of a workload. Its addresses come last.
	Other string `json:"t,omitempty"`
}
