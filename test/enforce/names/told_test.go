package names

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS112_ABlockedLineSaysTheName that the pod looked up, by UDP and by TCP, and that no rule has. The answers are not
// held, and the address of another one has no name.
func TestS112_ABlockedLineSaysTheName(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, byName("*.example.com"))
		d := w.Daemons[0]
		e2e.EachFamily(func(family int) {
			for i, network := range []string{"udp", "tcp"} {
				name, said := fmt.Sprintf("n%d.evil.org", family+i), d.Log.Len()
				a := mustLookUp(t, w, network, name+".", family)
				reaches(t, w, a, false)
				d.AwaitLine(t, said, `msg=blocked direction=egress protocol=TCP from="shop/web [^"]*" to="?\[?`+
					regexp.QuoteMeta(a.String())+`\]?:8080"? domain_names=`+regexp.QuoteMeta(name)+` denied_by=`)
			}
			said := d.Log.Len()
			reaches(t, w, outside(family, 99), false)
			d.AwaitLine(t, said, regexp.QuoteMeta(outside(family, 99).String())+`\]?:8080"? denied_by=`)
		})
	})
}
