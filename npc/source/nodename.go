package source

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weave-npc/weave-npc/npc"
)

const (
	// nodeInput is the node's name in the list of unsynced inputs.
	nodeInput = "node"
	// askNodeAgain is the time between two requests for the Node.
	askNodeAgain = 5 * time.Second
)

// nodeName is the configured name of this node. It is confirmed for good when a Node or a pod has it.
type nodeName struct {
	name      string
	unsynced  *unsynced
	once      sync.Once
	confirmed chan struct{} // closed when the name is confirmed
}

func newNodeName(name string, u *unsynced) *nodeName {
	n := &nodeName{name: name, unsynced: u, confirmed: make(chan struct{})}
	if name == "" {
		n.confirm() // the check is not wanted
	}
	return n
}

func (n *nodeName) confirm() {
	n.once.Do(func() {
		close(n.confirmed)
		n.unsynced.set(nodeInput, "")
	})
}

func (n *nodeName) known() bool {
	select {
	case <-n.confirmed:
		return true
	default:
		return false
	}
}

// doubt lists the name as not synced, unless it has been confirmed.
func (n *nodeName) doubt(reason string) {
	if n.known() {
		return
	}
	n.unsynced.set(nodeInput, fmt.Sprintf("%s: give this node's name with --node-name", reason))
	if n.known() { // it was confirmed meanwhile
		n.unsynced.set(nodeInput, "")
	}
}

// ask requests the Node from the API server until the name is confirmed. It closes asked after the first answer.
func (n *nodeName) ask(ctx context.Context, get func(context.Context) error, asked chan<- struct{}, log *slog.Logger) {
	logged := ""
	for first := true; !n.known(); first = false {
		asking, cancel := context.WithTimeout(ctx, askNodeAgain)
		err := get(asking)
		cancel()
		why := fmt.Sprintf("no Node and no pod of the cluster is called %q", n.name)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			n.confirm()
		case !apierrors.IsNotFound(errors.Cause(err)):
			why = fmt.Sprintf("the Node %q cannot be read and no pod is on a node of that name: %v", n.name, err)
			fallthrough
		default:
			n.doubt(why)
			if why != logged && !n.known() {
				log.Warn("this node is not known, trying again", "node", n.name, "err", err)
			}
			logged = why
		}
		if first {
			close(asked)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.confirmed:
		case <-time.After(askNodeAgain):
		}
	}
}

// podWatcher is a sink that confirms the node's name when a pod has it.
type podWatcher struct {
	Sink
	node *nodeName
}

// SetPod implements Sink.
func (w podWatcher) SetPod(p npc.Pod) {
	if p.Node == w.node.name {
		w.node.confirm()
	}
	w.Sink.SetPod(p)
}
