package serve

import (
	"strconv"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
)

// bookmarker makes the bookmarks of a kind in one encoding.
type bookmarker struct {
	kind   *kinds.Kind
	source upstream.Source
	frames *frames
	made   []byte // of the version
	of     uint64
}

// bookmark returns the bookmark, and its version, of an agent that has the version last, and all events up to handed;
// none unless it has everything that the relay had reached, and the relay had what the API server has.
func (b *bookmarker) bookmark(at upstream.Reached, handed, last uint64) ([]byte, uint64) {
	version := max(at.Version, handed)
	if !at.Fresh || max(last, handed) < at.Event || version < last {
		return nil, 0
	}
	if b.made == nil || b.of != version {
		e, err := b.kind.Bookmark(strconv.FormatUint(version, 10))
		if err != nil {
			return nil, 0 // all kinds have metadata
		}
		frame, err := b.frames.of(e)
		if err != nil {
			return nil, 0
		}
		b.made, b.of = frame, version
	}
	return b.made, version
}
