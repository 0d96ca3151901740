package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc/enforce/host"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

const (
	// retryInterval is the wait before the API server is asked again for the node's ranges.
	retryInterval = 5 * time.Second
	// requestTimeout bounds a single request.
	requestTimeout = 5 * time.Second
)

// checkNode returns an error if the API server has no such node. A server that does not answer is no error, as it may
// answer later. Without a client, as with --manifests, nothing is asked.
func checkNode(ctx context.Context, client kubernetes.Interface, node string, log *slog.Logger) error {
	if client == nil {
		return nil
	}
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := snapshot.NodeRanges(request, client, node)
	if apierrors.IsNotFound(errors.Cause(err)) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("the API server does not answer, trying again", "err", err)
	}
	return nil
}

// followAddrs passes the addresses of this node, of its interfaces and its Node object, to set until the context ends.
func followAddrs(ctx context.Context, client kubernetes.Interface, node string, set func([]netip.Addr),
	log *slog.Logger,
) error {
	f := host.AddressFollower{Set: set, Log: log}
	if client != nil {
		f.Ask = func(ctx context.Context) ([]netip.Addr, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			return snapshot.NodeAddrs(ctx, client, node)
		}
	}
	return f.Run(ctx)
}

// awaitRanges waits until the Node object has ranges of pod addresses, which may be assigned late, and passes them to
// set once.
func awaitRanges(ctx context.Context, client kubernetes.Interface, node string, set func([]netip.Prefix),
	log *slog.Logger,
) error {
	for client != nil {
		ranges, err := snapshot.NodeRanges(ctx, client, node)
		if len(ranges) > 0 {
			set(ranges)
			return nil
		}
		if err != nil {
			log.Debug("cannot find the node's ranges of pod addresses, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryInterval):
		}
	}
	return nil
}
