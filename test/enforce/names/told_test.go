package names

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
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

// TestS99_RecordsHaveNames: of allowed connections those of the policy, and of denied ones those that the pod looked up.
func TestS99_RecordsHaveNames(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, dir := e2e.New(t, backend, lab.Config{}), t.TempDir()
		openOutside(t, w)
		serve(t, w.Hosts["mon"])
		m := w.FromManifests(t, e2e.Do(base(), byName("*.example.com")))
		w.StartEach(t, func(i int, n *lab.Node) *e2e.Daemon {
			return e2e.NewDaemon(n, w.DaemonArgs(i, "--manifests", m.Dir, "--record-flows", "--flows-socket", filepath.Join(dir, n.Name()))...)
		})
		w.Daemons[0].AwaitReady(t)
		e2e.EachFamily(func(family int) {
			for i, name := range []string{"n%d.example.com", "n%d.evil.org"} {
				name := fmt.Sprintf(name, family*10+i)
				a := mustLookUp(t, w, "udp", name+".", family)
				reaches(t, w, a, i == 0)
				line := regexp.MustCompile(fmt.Sprintf(`(?m)^.* %s +shop/\S+ +%s \(%s\) +tcp/8080 `, [...]string{"allowed", "denied"}[i],
					regexp.QuoteMeta(a.String()), regexp.QuoteMeta(name)))
				var out, stderr string
				await.Within(t, e2e.Timeout, func() bool {
					out, stderr, _ = e2e.Execute(t, w.Node("node1"), nil, "flows", "--flows-socket", filepath.Join(dir, "node1"), "--to", name)
					return line.MatchString(out)
				}, func() string { return "flows says\n" + out + stderr })
			}
		})
	})
}
