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
	// nodeInput is the key of the node's name among the inputs that have not been read.
	nodeInput = "node"
	// askNodeAgain is how long to wait before the API server is asked again for a node.
	askNodeAgain = 5 * time.Second
)

// nodeName is the name that this node is told to have. It is confirmed when a Node or a pod has it, once and for all.
type nodeName struct {
	name      string
	unread    *unread
	once      sync.Once
	confirmed chan struct{} // closed when it is
}

func newNodeName(name string, u *unread) *nodeName {
	n := &nodeName{name: name, unread: u, confirmed: make(chan struct{})}
	if name == "" {
		n.confirm() // nobody asks
	}
	return n
}

func (n *nodeName) confirm() {
	n.once.Do(func() {
		close(n.confirmed)
		n.unread.set(nodeInput, "")
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

// doubt lists the name as unread, unless it has been confirmed.
func (n *nodeName) doubt(why string) {
	if n.known() {
		return
	}
	n.unread.set(nodeInput, fmt.Sprintf("%s: give this node's name with --node-name", why))
	if n.known() { // confirmed meanwhile
		n.unread.set(nodeInput, "")
	}
}

// ask asks the API server for the Node until the name is confirmed. asked is closed after the first answer.
func (n *nodeName) ask(ctx context.Context, get func(context.Context) error, asked chan<- struct{}, log *slog.Logger) {
	said := ""
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
			if why != said && !n.known() {
				log.Warn("this node is not known, trying again", "node", n.name, "err", err)
			}
			said = why
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
