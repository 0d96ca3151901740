package output

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTablesFitTheTerminal continues cells, the widest first, after spaces and commas; none becomes very narrow.
func TestTablesFitTheTerminal(t *testing.T) {
	rows := [][]string{{"POLICY", "SELECTS", "DECIDES"},
		{"shop/web", "app=web,tier=front (shop/web-1, shop/web-2)", "ingress 1: tcp/80 from pods with app=client in namespaces with team=a"},
		{"IPv4 WEAVE-NPC: a title that is as long as it is"},
		{"shop/a-name-that-has-no-place-to-break", "", "-"}}
	for width, want := range map[int]string{
		0: "", 200: "",
		100: `
POLICY|SELECTS|DECIDES
shop/web|app=web,tier=front (shop/web-1,|ingress 1: tcp/80 from pods with
|shop/web-2)|app=client in namespaces with
||team=a
IPv4 WEAVE-NPC: a title that is as long as it is
shop/a-name-that-has-no-place-to-break||-`,
	} {
		got := fit(rows, width)
		if want == "" {
			if diff := cmp.Diff(rows, got); diff != "" {
				t.Errorf("%d: %s", width, diff)
			}
			continue
		}
		var lines []string
		for _, r := range got {
			lines = append(lines, strings.Join(r, "|"))
		}
		if diff := cmp.Diff(strings.Split(want[1:], "\n"), lines); diff != "" {
			t.Errorf("%d: %s", width, diff)
		}
	}
	if narrow([]int{narrowest, narrowest}, 10) {
		t.Error("narrow columns become narrower")
	}
}
