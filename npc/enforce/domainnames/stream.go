package domainnames

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"time"
)

const (
	// history is how many bytes of a stream that were released are kept, to compare what is sent again.
	history = 1 << 16
	// maxDrops is how often a segment is dropped because it is too early. TCP sends the last one of several again before
	// it sends what is missing, but once only.
	maxDrops = 3
	// Bounds of the streams of one pod, and of all.
	streamsOfPod = 64
	bytesOfPod   = 512 << 10
	maxStreams   = 4096
	maxBytes     = 16 << 20
	// idleStream is how long a stream is kept without a segment.
	idleStream = time.Hour
)

// verdict is what is done with a packet.
type verdict uint8

const (
	accept verdict = iota
	drop
	reset
)

// flow is a TCP connection from a DNS server to a pod.
type flow struct{ from, to netip.AddrPort }

// stream is what a DNS server sends in a connection.
type stream struct {
	first uint32 // the sequence number of the first byte
	next  uint32 // the sequence number of the byte after data
	data  []byte // the last bytes that were released, and the beginning of an incomplete message
	begun int    // offset in data of the first message that is not complete
	used  time.Time
	// early is the sequence number of the segment that was dropped last, and drops how often since a segment passed.
	early uint32
	drops int
}

// take takes a segment and calls handle with each message that it completes. Only the next bytes of the stream pass,
// and such as were released before, if they are the same: what the pod reads is what handle was called with. The
// messages are valid until handle returns.
func (s *stream) take(seq uint32, payload []byte, handle func(message []byte)) verdict {
	ahead := int(int32(seq - s.next))
	if ahead > 0 {
		return s.tooEarly(seq)
	}
	old := min(-ahead, len(payload))
	start := len(s.data) + ahead
	if start < 0 || !bytes.Equal(s.data[start:start+old], payload[:old]) {
		return reset
	}
	s.data = append(s.data, payload[old:]...)
	s.next += uint32(len(payload) - old)
	s.drops = 0
	for {
		rest := s.data[s.begun:]
		if len(rest) < 2 || len(rest)-2 < int(binary.BigEndian.Uint16(rest)) {
			break
		}
		size := 2 + int(binary.BigEndian.Uint16(rest))
		handle(rest[2:size])
		s.begun += size
	}
	if surplus := min(s.begun, len(s.data)-history); surplus > 0 {
		s.data = append(s.data[:0], s.data[surplus:]...)
		s.begun -= surplus
	}
	return accept
}

// tooEarly drops a segment that TCP will send again, after what is missing. If only this one comes again and again, the
// pod has what is missing: the stream went past the queue for a while.
func (s *stream) tooEarly(seq uint32) verdict {
	if seq != s.early {
		s.early, s.drops = seq, 0
	}
	if s.drops++; s.drops > maxDrops {
		return reset
	}
	return drop
}

// podStreams are the streams to one pod.
type podStreams struct {
	flows map[flow]*stream
	bytes int
}

// streams are the TCP streams that are followed. They are bounded: what is left out is reset at its next segment.
type streams struct {
	pods         map[netip.Addr]*podStreams
	count, bytes int
}

func newStreams() *streams { return &streams{pods: map[netip.Addr]*podStreams{}} }

// take takes a packet, and calls handle with each message that it completes.
func (ss *streams) take(p packet, now time.Time, handle func(message []byte)) verdict {
	f := flow{p.from, p.to}
	seq := p.seq
	if p.flags&(flagSYN|flagACK) == flagSYN|flagACK {
		seq++
		if s := ss.get(f); s == nil || s.first != seq {
			ss.remove(f)
			ss.add(f, &stream{first: seq, next: seq, used: now})
		}
	}
	if len(p.payload) == 0 {
		return accept
	}
	s := ss.get(f)
	if s == nil || p.flags&flagURG != 0 { // urgent data is no part of what the pod reads
		ss.remove(f)
		return reset
	}
	before := cap(s.data)
	v := s.take(seq, p.payload, handle)
	s.used = now
	ss.bytes += cap(s.data) - before
	ss.pods[p.to.Addr()].bytes += cap(s.data) - before
	if v == reset {
		ss.remove(f)
		return reset
	}
	ss.bound(f)
	if ss.get(f) == nil {
		return reset
	}
	return v
}

func (ss *streams) get(f flow) *stream {
	if pod := ss.pods[f.to.Addr()]; pod != nil {
		return pod.flows[f]
	}
	return nil
}

func (ss *streams) add(f flow, s *stream) {
	pod := ss.pods[f.to.Addr()]
	if pod == nil {
		pod = &podStreams{flows: map[flow]*stream{}}
		ss.pods[f.to.Addr()] = pod
	}
	pod.flows[f] = s
	ss.count++
	ss.bound(f)
}

// remove forgets a stream.
func (ss *streams) remove(f flow) {
	pod := ss.pods[f.to.Addr()]
	if pod == nil || pod.flows[f] == nil {
		return
	}
	size := cap(pod.flows[f].data)
	delete(pod.flows, f)
	ss.count--
	ss.bytes -= size
	if pod.bytes -= size; len(pod.flows) == 0 {
		delete(ss.pods, f.to.Addr())
	}
}

// bound forgets the streams that were used longest ago while there are too many, first those of the flow's pod.
func (ss *streams) bound(f flow) {
	for {
		pod := ss.pods[f.to.Addr()]
		switch {
		case pod != nil && (len(pod.flows) > streamsOfPod || pod.bytes > bytesOfPod):
			oldest, _ := pod.oldest()
			ss.remove(oldest)
		case ss.count > maxStreams || ss.bytes > maxBytes:
			ss.remove(ss.oldest())
		default:
			return
		}
	}
}

func (ps *podStreams) oldest() (oldest flow, used time.Time) {
	for f, s := range ps.flows {
		if used.IsZero() || s.used.Before(used) {
			oldest, used = f, s.used
		}
	}
	return oldest, used
}

func (ss *streams) oldest() (oldest flow) {
	var used time.Time
	for _, pod := range ss.pods {
		if f, u := pod.oldest(); used.IsZero() || u.Before(used) {
			oldest, used = f, u
		}
	}
	return oldest
}

// expire forgets the streams that have been idle for long.
func (ss *streams) expire(now time.Time) {
	for _, pod := range ss.pods {
		for f, s := range pod.flows {
			if now.Sub(s.used) > idleStream {
				ss.remove(f)
			}
		}
	}
}
