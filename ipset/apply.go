package ipset

import (
	"slices"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// messageSize limits one message of elements, in bytes. A larger one saves little and costs more to repeat.
	messageSize = 16 << 10

	// windowSize limits the bytes of one send; the kernel's default send buffer is 208 KiB.
	windowSize = 128 << 10

	// answerSize is the number of bytes that an acknowledgement takes in the receive buffer. An error that names an
	// element also takes the length of the request, possibly twice.
	answerSize = 1 << 10

	// Limits of the number of buckets of a new hash, at 8 bytes each. Most sets are small, so the lower limit is the
	// kernel's own; the upper one bounds the memory reserved for the elements of the same batch.
	minHashSize = 64
	maxHashSize = 1 << 16
)

// Apply carries out the operations in order, many at a time. A failing operation or element does not stop the others;
// Apply returns the failures as a *BatchError. Operations on elements of a missing set fail, Delete included.
//
// The order is kept between operations of different groups: Create and Add form one group, Delete, Flush and Destroy
// one each. Within a run of operations of one group, elements after a failed one may be applied after later operations.
func (c *Conn) Apply(ops []Op) error {
	b := batch{conn: c, ops: ops, merged: map[failure]*OpError{}, sizes: sizes(ops)}
	c.out.buf = c.out.buf[:0]
	for i := range ops {
		if i > 0 && group(ops[i].Kind) != group(ops[i-1].Kind) {
			b.flush()
		}
		b.add(i)
	}
	b.flush()
	return b.result()
}

// group returns the group of a kind. Operations of one group may be in flight together.
func group(k OpKind) OpKind {
	if k == Create {
		return Add
	}
	return k
}

// batch is the state of one Apply.
type batch struct {
	conn    *Conn
	ops     []Op
	pending []request // encoded and not yet answered
	cost    int       // bytes that their answers may take in the receive buffer
	failed  []*OpError
	merged  map[failure]*OpError // a failure of elements -> its entry in failed
	sizes   map[string]int       // name of a set to create -> number of elements that it will get
	broken  error                // the error of the socket, after which nothing is sent
}

// failure is the key under which rejected elements are reported together.
type failure struct {
	op    int
	kind  OpKind
	err   KernelError
	whole bool // the kernel rejected a whole message and blamed no element
}

// request is a message that waits for its answer.
type request struct {
	op       int // index
	kind     OpKind
	elements []Element
	answered bool
	code     uint32 // of the answer, 0 for success
	line     uint32 // of the rejected element, from 1; 0 if the kernel blamed none
}

// add encodes an operation.
func (b *batch) add(index int) {
	op := &b.ops[index]
	if err := op.check(); err != nil {
		b.fail(index, nil, err)
		return
	}
	switch op.Kind {
	case Create:
		b.encode(request{op: index, kind: Create}, func(seq uint32) {
			b.conn.out.create(op.Set, hashSize(b.sizes[op.Set.Name], op.Set.limit()), unix.NLM_F_EXCL, seq)
		})
		b.change(index, Add, b.valid(index))
	case Add, Delete:
		b.change(index, op.Kind, b.valid(index))
	case Flush:
		b.encode(request{op: index, kind: Flush}, func(seq uint32) {
			b.conn.out.named(nl.IPSET_CMD_FLUSH, op.Set.Name, seq)
		})
	case Destroy:
		b.encode(request{op: index, kind: Destroy}, func(seq uint32) {
			b.conn.out.named(nl.IPSET_CMD_DESTROY, op.Set.Name, seq)
		})
	}
}

// sizes returns the number of elements that the operations add to each set that they create.
func sizes(ops []Op) map[string]int {
	counts := map[string]int{}
	for i := range ops {
		name := ops[i].Set.Name
		_, created := counts[name]
		if ops[i].Kind == Create || ops[i].Kind == Add && created {
			counts[name] += len(ops[i].Elements)
		}
	}
	return counts
}

// hashSize returns the number of buckets for a new set with the given number of elements. A set that has to grow waits
// for a grace period at every doubling.
func hashSize(elements int, limit uint32) uint32 {
	elements = int(min(int64(elements), int64(limit)))
	size := uint32(minHashSize)
	for size < maxHashSize && int(size)*4 < elements {
		size *= 2
	}
	return size
}

// change encodes elements to add or delete, in one or more messages.
func (b *batch) change(index int, kind OpKind, elements []Element) {
	for len(elements) > 0 {
		count := 0
		b.encode(request{op: index, kind: kind}, func(seq uint32) {
			count = b.conn.out.change(kind, b.ops[index].Set.Name, elements, messageSize, seq)
			b.pending[len(b.pending)-1].elements = elements[:count]
		})
		elements = elements[count:]
	}
}

// encode appends a message. It sends the pending messages first if they would become too large with the new one.
func (b *batch) encode(r request, message func(seq uint32)) {
	c := b.conn
	for len(b.pending) > 0 && (len(c.out.buf)+messageSize > windowSize ||
		b.cost+answerSize+2*messageSize > c.budget) {
		b.exchange()
	}
	before := len(c.out.buf)
	b.pending = append(b.pending, r)
	c.seq++
	message(c.seq)
	b.cost += answerSize
	if r.kind == Add || r.kind == Delete {
		b.cost += 2 * (len(c.out.buf) - before)
	}
}

// flush sends the pending messages until all are answered.
func (b *batch) flush() {
	for len(b.pending) > 0 {
		b.exchange()
	}
}

// exchange sends the pending messages once. The elements after a failed one become pending again.
func (b *batch) exchange() {
	c := b.conn
	sent := b.pending
	b.transfer()
	b.pending, b.cost = nil, 0
	c.out.buf = c.out.buf[:0]

	var redo []request
	for _, r := range sent {
		if !r.answered {
			b.fail(r.op, r.elements, b.broken)
			continue
		}
		if r.code == 0 {
			continue
		}
		if rest := b.reconcile(r); len(rest) > 0 {
			redo = append(redo, request{op: r.op, kind: r.kind, elements: rest})
		}
	}
	c.out.buf = c.out.buf[:0]
	for _, r := range redo {
		b.change(r.op, r.kind, r.elements)
	}
}

// transfer sends the pending messages and records the answers.
func (b *batch) transfer() {
	if b.broken != nil {
		return
	}
	c := b.conn
	first, missing := c.seq-uint32(len(b.pending))+1, len(b.pending)
	if b.broken = c.send(); b.broken != nil {
		return
	}
	b.broken = c.receive(first, len(b.pending), func(p packet) (bool, error) {
		r := &b.pending[p.seq-first]
		if p.kind != unix.NLMSG_ERROR || r.answered {
			return false, nil
		}
		code, err := p.code()
		if err != nil {
			return true, err
		}
		r.answered, r.code = true, code
		if code != 0 && len(r.elements) > 0 {
			r.line = p.failedLine()
		}
		missing--
		return missing == 0, nil
	})
}

// reconcile handles an error and returns the elements that are still to be sent.
func (b *batch) reconcile(r request) []Element {
	op := &b.ops[r.op]
	err := KernelError{Code: r.code, List: op.Set.Type == ListSet}
	switch r.kind {
	case Create:
		if err.Code == uint32(unix.EEXIST) {
			b.confirm(r.op)
		} else {
			b.fail(r.op, nil, err)
		}
		return nil
	case Flush, Destroy:
		if err.Code != uint32(unix.ENOENT) {
			b.fail(r.op, nil, err)
		}
		return nil
	}
	if r.line == 0 || int(r.line) > len(r.elements) {
		b.reject(r, r.elements, err)
		return nil
	}
	absent := r.kind == Delete && err.List && (err.Code == errListName || err.Code == errListLoop)
	if !absent {
		b.reject(r, r.elements[r.line-1:r.line], err)
	}
	return r.elements[r.line:]
}

// confirm fails a Create unless the existing set is the same. The kernel compares everything but the family.
func (b *batch) confirm(index int) {
	c := b.conn
	set := b.ops[index].Set
	c.out.buf = c.out.buf[:0]
	c.seq++
	c.out.create(set, minHashSize, 0, c.seq)
	compare := batch{conn: c, ops: b.ops, pending: []request{{op: index, kind: Create}}, broken: b.broken}
	compare.transfer()
	if compare.broken != nil {
		b.broken = compare.broken
		b.fail(index, nil, b.broken)
		return
	}
	found, err := c.header(set.Name)
	if err != nil {
		b.fail(index, nil, errors.Wrap(err, "reading the existing set"))
		return
	}
	same := found.Type == set.Type && (set.Type == ListSet || found.Family == set.Family)
	if code := compare.pending[0].code; code != 0 && code != uint32(unix.EEXIST) {
		b.fail(index, nil, KernelError{Code: code, List: set.Type == ListSet})
	} else if code != 0 || !same {
		b.fail(index, nil, errors.Wrapf(ErrExists, "%s, family %s, size %d, timeout %d, comments %t",
			found.Type, found.Family, found.limit(), found.Timeout, found.Comments))
	}
}

// reject records elements of a request that the kernel rejected.
func (b *batch) reject(r request, elements []Element, err KernelError) {
	lost := func(e *OpError) bool { return e.Index == r.op && e.Elements == nil }
	if r.line == 0 && err.Code == uint32(unix.ENOENT) && slices.ContainsFunc(b.failed, lost) {
		return // the set could not be created, which is recorded already
	}
	key := failure{op: r.op, kind: r.kind, err: err, whole: r.line == 0}
	if e := b.merged[key]; e != nil {
		e.Elements = append(e.Elements, elements...)
		return
	}
	b.merged[key] = b.fail(r.op, slices.Clone(elements), err)
}

// fail records an error.
func (b *batch) fail(index int, elements []Element, err error) *OpError {
	op := &b.ops[index]
	e := &OpError{Index: index, Kind: op.Kind, Set: op.Set.Name, Elements: elements, Err: err}
	b.failed = append(b.failed, e)
	return e
}

// result returns the failures in the order of the operations, or nil.
func (b *batch) result() error {
	if len(b.failed) == 0 {
		return nil
	}
	for key, e := range b.merged {
		if key.whole && len(e.Elements) == len(b.ops[e.Index].Elements) {
			e.Elements = nil
		}
	}
	slices.SortStableFunc(b.failed, func(x, y *OpError) int { return x.Index - y.Index })
	return &BatchError{Errors: b.failed}
}

// valid returns the valid elements of an operation and records the others as failed.
func (b *batch) valid(index int) []Element {
	op := &b.ops[index]
	var good []Element
	for i := range op.Elements {
		err := op.Elements[i].check(op.Kind, op.Set)
		if err != nil && good == nil {
			good = append(make([]Element, 0, len(op.Elements)), op.Elements[:i]...)
		}
		switch {
		case err != nil:
			b.fail(index, op.Elements[i:i+1:i+1], err)
		case good != nil:
			good = append(good, op.Elements[i])
		}
	}
	if good == nil {
		return op.Elements
	}
	return good
}
