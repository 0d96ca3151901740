package spelling

import (
	"slices"
	"testing"
)

func TestDidYouMean(t *testing.T) {
	for _, c := range []struct {
		name, want string
		names      []string
	}{
		{"shop", "; did you mean shop?", []string{"ops", "shop"}},
		{"shpo", "; did you mean shop?", []string{"ops", "shop"}}, // two letters swapped
		{"shp", "; did you mean shop?", []string{"ops", "shop"}},
		{"shoop", "; did you mean shop?", []string{"shop", "shopping"}},
		{"web", "; did you mean wea?", []string{"wez", "wea"}}, // the first of equally similar ones
		{"frontend", "", []string{"backup", "db"}},
		{"shop", "", nil},
	} {
		if got := DidYouMean(c.name, slices.Values(c.names)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestList(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "web": {"web"}, "web and db": {"web", "db"}, "web, db and cache": {"web", "db", "cache"}} {
		if got := List(words); got != want {
			t.Errorf("%v are %q, want %q", words, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods"} {
		if got := Count(n, "pod"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
