package source

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watchFunc opens a watch.
type watchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// checked returns open with its events checked. A reflector leaves out an event about an object of another kind, and
// the change is lost; one without a resourceVersion makes it watch from anywhere. Here both end the watch as an error.
func checked(open watchFunc, isKind func(runtime.Object) bool) watchFunc {
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := open(ctx, o)
		if err != nil {
			return nil, err // with its status, which callers ask for
		}
		ctx, cancel := context.WithCancel(ctx)
		c := &checkedWatch{from: w, ctx: ctx, cancel: cancel, isKind: isKind, result: make(chan watch.Event)}
		go c.run()
		return c, nil
	}
}

// checkedWatch passes on the events of another watch.
type checkedWatch struct {
	from   watch.Interface
	ctx    context.Context //nolint:containedctx // of the watch, which Stop ends
	cancel context.CancelFunc
	isKind func(runtime.Object) bool
	result chan watch.Event
}

// ResultChan implements watch.Interface.
func (c *checkedWatch) ResultChan() <-chan watch.Event { return c.result }

// Stop implements watch.Interface.
func (c *checkedWatch) Stop() {
	c.cancel()
	c.from.Stop()
}

func (c *checkedWatch) run() {
	defer close(c.result)
	defer c.Stop()
	for e := range c.from.ResultChan() {
		why := c.wrong(e)
		if why != "" {
			e = watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure,
				Code: http.StatusBadGateway, Message: "the watch has " + why}}
		}
		select {
		case c.result <- e:
		case <-c.ctx.Done():
			return
		}
		if why != "" {
			return
		}
	}
}

// wrong returns what is wrong with an event; empty if nothing is.
func (c *checkedWatch) wrong(e watch.Event) string {
	if e.Type == watch.Error {
		return ""
	}
	m, err := meta.Accessor(e.Object)
	switch {
	case err != nil || !c.isKind(e.Object):
		return fmt.Sprintf("an event of type %s about a %T", e.Type, e.Object)
	case m.GetResourceVersion() == "" || m.GetName() == "" && e.Type != watch.Bookmark:
		return fmt.Sprintf("an event of type %s about an object %q of version %q", e.Type, m.GetName(),
			m.GetResourceVersion())
	}
	return ""
}

// isA reports whether an object is of a type.
func isA[T runtime.Object](o runtime.Object) bool {
	_, ok := o.(T)
	return ok
}

// isClusterPolicy reports whether an object, as it is stored, is a ClusterNetworkPolicy.
func isClusterPolicy(o runtime.Object) bool {
	return o.GetObjectKind().GroupVersionKind().Kind == "ClusterNetworkPolicy"
}
