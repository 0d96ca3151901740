package flowlog

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/weave-npc/weave-npc/npc/flow"
)

// Evaluator evaluates a connection when it is opened: it names its ends and the rules that decide it.
type Evaluator interface {
	// Evaluate returns what is known of a connection, and false if neither end is a pod of this node.
	Evaluate(src, dst netip.Addr, s flow.Service) (Evaluation, bool)
}

// Evaluation is what is known of a connection.
type Evaluation struct {
	From, To End
	// PortNames are the names that the destination gives to the port.
	PortNames []string
	// Verdict is given by rules, the one that decided first; none if no rule did. RuleUnknown is set, and Verdict is
	// empty, if they were not evaluated, for lack of time.
	Verdict     Verdict
	By          []Applied
	RuleUnknown bool
	// Staged are the groups that would decide otherwise, without numbers and times. Unevaluated is set if they were not
	// evaluated, for lack of time.
	Staged      []Staged
	Unevaluated bool
}

// Connection is what connections have in common that are recorded together. Those that are recorded in one call are
// evaluated once.
type Connection struct {
	Src, Dst netip.Addr
	Service  flow.Service
}

// Store holds records, a limited number. It may be used concurrently.
type Store struct {
	node  string
	limit int
	// Seen, if not nil, hears of connections when they are recorded. It must be set before the store is used.
	Seen func(c Connection, j Evaluation, number int)

	mu      sync.Mutex // guards the fields below
	records map[key]*entry
	ends    entry  // of the list of entries: older is the one that was recorded last, newer the first
	version uint64 // counts what was recorded
	changes uint64 // counts what else was changed
	evicted uint64
	// waiting are entries that no reply is known of, by the last of their connections.
	waiting map[Connection]*entry
	// labels are those of workloads, so that records share them.
	labels map[workload]map[string]string
	batch  map[Connection]int
	hits   *counter
}

// key is what connections of one record have in common.
type key struct {
	Between
	verdict Verdict
}

// entry is a record in the list.
type entry struct {
	Record
	key          key
	version      uint64
	newer, older *entry
	last         Connection
}

// NewStore returns an empty store for what a node sees. It counts hits of rules from now on.
func NewStore(node string, limit int) *Store {
	s := &Store{node: node, limit: limit, records: map[key]*entry{},
		waiting: map[Connection]*entry{}, labels: map[workload]map[string]string{},
		batch: map[Connection]int{}, hits: newCounter(time.Now().UTC())}
	s.ends.newer, s.ends.older = &s.ends, &s.ends
	return s
}

// Add records connections that were opened by now. The verdict v is what the node did with them. If the evaluator
// decides otherwise, it has later policies, and only the names of the ends are taken from it.
func (s *Store) Add(now time.Time, evaluator Evaluator, v Verdict, opened []Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.batch)
	for _, c := range opened {
		s.batch[c]++
	}
	for c, number := range s.batch {
		j, concerned := evaluator.Evaluate(c.Src, c.Dst, c.Service)
		if !concerned {
			continue
		}
		j.From.clean()
		j.To.clean()
		if j.Verdict != v {
			j.Verdict, j.By, j.Staged = v, nil, nil
		}
		s.record(now, c, number, j)
		for _, rule := range j.By {
			s.hits.add(now, rule, v, number)
		}
		if s.Seen != nil {
			s.Seen(c, j, number)
		}
	}
}

// record adds connections to their record.
func (s *Store) record(now time.Time, c Connection, number int, j Evaluation) {
	r := Record{From: j.From, To: j.To, Port: c.Service, PortNames: j.PortNames, Verdict: j.Verdict}
	if len(j.By) > 0 {
		r.By = &j.By[0].RuleRef
	}
	k := keyOf(&r)
	e := s.records[k]
	if e == nil {
		e = &entry{key: k, Record: Record{First: now}}
		s.records[k] = e
	} else {
		e.unlink()
	}
	r.First, r.Last, r.Node = e.First, now, s.node
	r.Count, r.Replied = e.Count+uint64(number), e.Replied
	if len(r.To.DomainNames) == 0 && !r.To.IsPod() {
		r.To.DomainNames = e.To.DomainNames
	}
	r.Staged = addStaged(e.Staged, j.Staged, number, now)
	r.From.Labels, r.To.Labels = s.share(k.from.workload, r.From.Labels), s.share(k.to.workload, r.To.Labels)
	e.Record = r
	s.await(e, c)
	s.push(e)
}

func keyOf(r *Record) key { return key{r.Between(), r.Verdict} }

// share returns labels, as another record of the workload has them if they are equal.
func (s *Store) share(w workload, labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	known := s.labels[w]
	if maps.Equal(known, labels) {
		return known
	}
	if len(s.labels) >= s.limit {
		clear(s.labels)
	}
	s.labels[w] = labels
	return labels
}

// push makes an entry the newest, and drops the oldest one if there are too many.
func (s *Store) push(e *entry) {
	s.version++
	e.version = s.version
	e.newer, e.older = &s.ends, s.ends.older
	e.newer.older, e.older.newer = e, e
	if len(s.records) <= s.limit {
		return
	}
	last := s.ends.newer
	last.unlink()
	s.forget(last)
	delete(s.records, last.key)
	s.evicted++
}

func (e *entry) unlink() { e.newer.older, e.older.newer = e.older, e.newer }

// Since returns the records that were made or added to after a version, the oldest first, and the version that they are
// of.
func (s *Store) Since(version uint64) ([]Record, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.ends.older
	for first != &s.ends && first.version > version {
		first = first.older
	}
	var out []Record
	for e := first.newer; e != &s.ends; e = e.newer {
		out = append(out, e.Record)
	}
	return out, s.version
}

// Counts are numbers of records, and of rules whose hits were dropped.
type Counts struct{ Held, Evicted, EvictedRules uint64 }

// Counts returns how many records there are, and how many records and rules went because there were too many.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{uint64(len(s.records)), s.evicted, s.hits.evicted}
}
