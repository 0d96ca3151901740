package flows

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// HitsOfCluster returns how often rules decided on all nodes of a cluster, which it finds as kubectl does. With an
// error, the hits are those of the nodes that answered; nil if none was asked. The others are named in stderr.
func HitsOfCluster(ctx context.Context, a apiclient.Access, stderr io.Writer) (*flowlog.Hits, error) {
	return kubectl{a}.hits(ctx, stderr)
}

func (k kubectl) hits(ctx context.Context, stderr io.Writer) (*flowlog.Hits, error) {
	var mu sync.Mutex // guards all
	var all []flowlog.Hits
	args := []string{"weave-npc", "flows", "--hits", "--output=" + outputJSON}
	failed, err := k.askAll(ctx, stderr, false, args, func(in io.Reader) error {
		h, err := flowlog.ReadHits(in)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, h)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, failed
	}
	merged := flowlog.MergeHits(all)
	return &merged, failed
}

// printHits prints rules, those whose last hit is the oldest first.
func (p *printer) printHits(h *flowlog.Hits) error {
	if p.output == outputJSON {
		return flowlog.WriteHits(p.out, *h)
	}
	rows := make([][]string, 0, len(h.Rules))
	for _, r := range h.Rules {
		rows = append(rows, []string{r.Last.Local().Format(time.DateTime), strconv.FormatUint(r.Count, 10),
			string(r.Verdict), r.String()})
	}
	if err := output.Table(p.out, "LAST HITS VERDICT RULE", rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.out, "\nHits are counted %s.\n", h.Span())
	return errors.Wrap(err, "writing")
}
