package matrix

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

//go:embed page.html
var pageSource string

//go:embed page.css
var style string

// engine decides cells, reasons finds the words, axis unfolds rows and columns, view shows them.
var (
	//go:embed engine.js
	engine string
	//go:embed reasons.js
	reasons string
	//go:embed axis.js
	axis string
	//go:embed view.js
	view string
)

// PageOptions select what the page shows first, and what it is about.
type PageOptions struct {
	Options
	// AllPorts shows all ports first, and not the options' service.
	AllPorts bool
	// Origin is what was read, and when.
	Origin string
}

// WritePage writes the page, and returns the pods that are left out because they own none of their addresses. The names
// of objects, which may hold anything, reach it only as text.
func WritePage(out io.Writer, v *cluster.View, o PageOptions) (omitted []string, err error) {
	each := o.EachPod
	o.EachPod = false
	asked, err := addresses(o.Addresses)
	if err != nil {
		return nil, err
	}
	of, domains, stands := v, reachability.Domains(asked, nil, v), map[netip.Addr]string{}
	if domains != nil {
		of = cluster.WithLearned(v, domains)
	}
	for a, names := range domains {
		stands[a] = names[0]
	}
	outside := reachability.Outside(v, slices.AppendSeq(slices.Clone(asked), maps.Keys(domains)))
	for i, a := range outside {
		stands[a] = []string{"outside", "outside, IPv6"}[i]
	}
	p, m, err := newRows(o.Options, asked, outside, domains, of)
	if err != nil {
		return nil, err
	}
	w := &pods{writer: writer{labels: map[string]bool{}, known: map[string]int{}}, view: v, stands: stands,
		partition: p, matrix: m,
		numbers:        map[*cluster.Policy]int{},
		clusterNumbers: map[*policy.Cluster]int{}, namespaces: map[string]int{}, nodes: map[string]int{},
		named:  map[flow.Service]bool{},
		single: map[*npc.Pod]int{}}
	w.withOthers, w.others = cluster.WithOthers(of)
	w.policies()
	w.findNamed()
	w.services()
	w.classes()
	w.alone()
	w.rows()
	w.Either, w.Level, w.Origin = o.Either, level(m, each), o.Origin
	if !o.AllPorts {
		w.Port = o.Service.String()
	}
	// The escapes of JSON are such that it can stand in a script.
	data, err := json.Marshal(w.document)
	if err != nil {
		return nil, errors.Wrap(err, "writing down the matrix")
	}
	script := engine + reasons + axis + view
	page := strings.NewReplacer("{{style}}", style, "{{script}}", script, "{{data}}", string(data),
		"{{style-hash}}", hash(style), "{{script-hash}}", hash(script))
	_, err = page.WriteString(out, pageSource)
	return m.Omitted, errors.Wrap(err, "writing the page")
}

// hash returns a text as a Content-Security-Policy names it.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// maxUnfolded is the number of rows above which namespaces are shown folded first.
const maxUnfolded = 120

func level(m *Matrix, each bool) int {
	switch {
	case each:
		return 2
	case max(len(m.From), len(m.To)) <= maxUnfolded:
		return 1
	}
	return 0
}
