package relayclient

import (
	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// sense is what an event means for one who has everything up to a version.
type sense int

const (
	news    sense = iota // it is to be delivered
	sign                 // nothing is new, and that is certain
	stale                // it was known before, or the sender is behind
	refused              // the sender cannot go on from here
)

// read returns what an event of a watch means for one who has everything up to a version, and the version of the event.
// An error is the sender's, or about an event that makes no sense.
func read(e watch.Event, since string) (sense, string, error) {
	if e.Type == watch.Error {
		return refused, "", errors.WithStack(apierrors.FromObject(e.Object))
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return refused, "", errors.Wrapf(err, "reading an event of type %s", e.Type)
	}
	version := m.GetResourceVersion()
	order, err := resourceversion.CompareResourceVersion(version, since)
	switch {
	case err != nil:
		return refused, "", errors.Wrapf(err, "comparing the version of %s with %s", m.GetName(), since)
	case order > 0:
		return news, version, nil
	case order == 0 && e.Type == watch.Bookmark:
		return sign, version, nil
	}
	return stale, version, nil
}

// endsList reports whether an event is the bookmark after the last object of a list that came as a stream, and its
// version.
func endsList(e watch.Event) (version string, ends bool) {
	if e.Type != watch.Bookmark {
		return "", false
	}
	m, err := meta.Accessor(e.Object)
	if err != nil || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		return "", false
	}
	return m.GetResourceVersion(), true
}

// older reports whether a version is before another one. What cannot be compared is not.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// numbered reports whether a version is one that a watch can go on from.
func numbered(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, "1")
	return err == nil
}

// listVersion returns the version of a list; empty if it has none.
func listVersion(list runtime.Object) string {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}

// gone reports whether a server no longer has the version that was asked for.
func gone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// unlisted reports whether an error means that a server does not list as a stream: the reflector then asks for a list.
func unlisted(err error) bool { return apierrors.IsInvalid(err) }

// final reports whether an answer of the API server is for the reflector: it has to list again, or there is no such
// kind.
func final(err error) bool { return gone(err) || apierrors.IsNotFound(err) }
