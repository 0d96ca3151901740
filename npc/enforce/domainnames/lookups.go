package domainnames

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weave-npc/weave-npc/npc/enforce/domainnames/internal/nfqueue"
)

const (
	// Bounds of what pods looked up: of a pod, and in all.
	maxLookupsOfPod = 64
	maxLookups      = 1024
	// keepLookup is for how long a name that a pod looked up is reported.
	keepLookup = time.Hour
	// maxNamesOf is how many names of an address are reported.
	maxNamesOf = 3
)

// lookup is an address that a pod was given for a name.
type lookup struct {
	addr netip.Addr
	name string
	when time.Time
}

// lookups are what pods looked up besides the names of their lists, those that were looked up last at the end. They
// decide nothing.
type lookups struct {
	pods  map[netip.Addr][]lookup
	count int
}

// add records what a pod looked up. If that is too much, the oldest goes: of the pod, else of the pod that has most.
func (l *lookups) add(pod netip.Addr, of lookup) {
	all := slices.DeleteFunc(l.pods[pod], func(o lookup) bool { return o.addr == of.addr && o.name == of.name })
	all = append(all, of)
	l.count += len(all) - len(l.pods[pod])
	l.pods[pod] = all
	if len(all) > maxLookupsOfPod {
		l.forgetFirst(pod)
	}
	if l.count > maxLookups {
		most := pod
		for other, of := range l.pods {
			if len(of) > len(l.pods[most]) {
				most = other
			}
		}
		l.forgetFirst(most)
	}
}

func (l *lookups) forgetFirst(pod netip.Addr) {
	l.pods[pod] = slices.Delete(l.pods[pod], 0, 1)
	l.count--
}

// forget forgets what a pod looked up.
func (l *lookups) forget(pod netip.Addr) {
	l.count -= len(l.pods[pod])
	delete(l.pods, pod)
}

// latest are the latest names of an address, at most maxNamesOf.
type latest []lookup

// add adds a name unless there are enough later ones.
func (t *latest) add(of lookup) {
	if slices.ContainsFunc(*t, func(o lookup) bool { return o.name == of.name }) {
		return
	}
	at, _ := slices.BinarySearchFunc(*t, of, func(a, b lookup) int {
		return cmp.Or(b.when.Compare(a.when), cmp.Compare(a.name, b.name))
	})
	*t = slices.Insert(*t, at, of)
	*t = (*t)[:min(len(*t), maxNamesOf)]
}

// copies are answers that are not held, which the kernel copied. They are read before names are reported, so that the name
// of a connection that follows its answer at once is known.
type copies struct {
	mu    sync.Mutex     // guards group
	group *nfqueue.Queue // nil if there is none
}

// unheard is what follows if copies cannot be read.
const unheard = "names that no policy has are missing in reports of connections"

func (c *copies) open(number uint16) (err error) {
	if number != 0 {
		c.group, err = nfqueue.Open(number, true)
	}
	return err
}

// read calls handle with each packet. It returns why there are none; nil if there may be some.
func (c *copies) read(handle func(raw []byte)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group == nil {
		return nil
	}
	if err := c.group.Drain(func(_ uint32, raw []byte) { handle(raw) }); err != nil {
		return err
	}
	return c.group.Refused
}

// retry asks for the group again if another process held it.
func (c *copies) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group != nil && c.group.Refused != nil {
		_ = c.group.Bind() // read has the answer
	}
}

func (c *copies) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group != nil {
		c.group.Close()
		c.group = nil
	}
}
