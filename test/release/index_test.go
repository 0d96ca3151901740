package release

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// descriptor names a blob of an image layout (OCI image specification).
type descriptor struct {
	MediaType, Digest string
	Platform          struct{ Architecture, OS string }
}

// checkIndex checks a layout: one index, and an image for each architecture whose blobs are there.
func checkIndex(t *testing.T, files map[string]entry) {
	t.Helper()
	var outer, index struct{ Manifests []descriptor }
	decode(t, files["index.json"].text, &outer)
	if len(outer.Manifests) != 1 || outer.Manifests[0].MediaType != "application/vnd.oci.image.index.v1+json" {
		t.Fatalf("the layout has %+v", outer)
	}
	decode(t, blob(t, files, outer.Manifests[0].Digest), &index)
	found := map[string]bool{}
	for _, m := range index.Manifests {
		found[m.Platform.OS+"/"+m.Platform.Architecture] = true
		var image struct {
			Config descriptor
			Layers []descriptor
		}
		decode(t, blob(t, files, m.Digest), &image)
		var config struct{ OS, Architecture string }
		decode(t, blob(t, files, image.Config.Digest), &config)
		if config.Architecture != m.Platform.Architecture || config.OS != m.Platform.OS || len(image.Layers) == 0 {
			t.Errorf("the image for %+v is for %+v", m.Platform, config)
		}
		for _, l := range image.Layers {
			blob(t, files, l.Digest)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
}

// blob returns a blob, which has to be what its digest says.
func blob(t *testing.T, files map[string]entry, digest string) []byte {
	t.Helper()
	sum, ok := strings.CutPrefix(digest, "sha256:")
	text := files["blobs/sha256/"+sum].text
	if is := sha256.Sum256(text); !ok || hex.EncodeToString(is[:]) != sum {
		t.Fatalf("blob %s is not there, or another one", digest)
	}
	return text
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}
