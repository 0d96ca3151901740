package ulogd

import (
	"encoding/binary"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pkg/errors"
)

const (
	// recordingBuffer bounds the bytes that wait to be written, recordingPeriod the time. A full buffer fits into the
	// smallest file.
	recordingBuffer = minRecordingSize / 2
	recordingPeriod = time.Second
	// recordingRetry is the pause after a failed write.
	recordingRetry = 10 * time.Second
	// snapLength is the length of the longest record according to the header.
	snapLength = 262144
)

// recording keeps the last logged packets in two capture files: the current one and the previous one, whose name ends
// in .1.
type recording struct {
	path string
	half int64 // maximum bytes of either file
	log  *slog.Logger
	stat *Stats

	mu      sync.Mutex // guards the fields below
	file    *os.File   // nil while there is none to write to
	size    int64      // of the complete records of the file
	buf     []byte     // complete records that are not written yet
	records uint64     // in buf
	failed  time.Time
	failing bool
}

// newRecording returns the recording that c asks for, or nil if it asks for none.
func newRecording(c Config) *recording {
	if c.Recording == "" {
		return nil
	}
	return &recording{path: c.Recording, half: c.RecordingSize / 2, log: c.Log, stat: c.Stats}
}

// add records a packet. b is its logged part, length its length on the wire.
func (r *recording) add(at time.Time, b []byte, length int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b = b[:min(len(b), recordingBuffer-recordHeader)]
	if len(r.buf)+recordHeader+len(b) > recordingBuffer {
		r.flush()
	}
	r.buf = binary.NativeEndian.AppendUint32(r.buf, uint32(at.Unix()))
	r.buf = binary.NativeEndian.AppendUint32(r.buf, uint32(at.Nanosecond()/1000))
	r.buf = binary.NativeEndian.AppendUint32(r.buf, uint32(len(b)))
	r.buf = binary.NativeEndian.AppendUint32(r.buf, uint32(max(len(b), length)))
	r.buf = append(r.buf, b...)
	r.records++
}

// sync writes the buffer.
func (r *recording) sync() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
}

// close writes the buffer and closes the file.
func (r *recording) close() {
	if r == nil {
		return
	}
	r.sync()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
}

// drop closes the file, if it is open.
func (r *recording) drop() {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

// flush writes the buffer. The file always ends with a complete record. If writing fails, the packets are counted and
// discarded.
func (r *recording) flush() {
	if len(r.buf) == 0 {
		return
	}
	err := r.write()
	if err != nil {
		r.stat.Unrecorded.Add(r.records)
		if !r.failing {
			r.log.Warn("blocked packets are not recorded, trying again", "file", r.path, "err", err)
		}
		r.failing, r.failed = true, time.Now()
	} else if r.failing {
		r.log.Info("blocked packets are recorded again", "file", r.path)
		r.failing = false
	}
	r.buf, r.records = r.buf[:0], 0
}

// write appends the buffer to the file, or to a new one if the file is full or not in its place.
func (r *recording) write() error {
	if r.failing && time.Since(r.failed) < recordingRetry {
		return errors.New("a moment ago it failed")
	}
	if !r.inPlace() || r.size+int64(len(r.buf)) > r.half {
		if err := r.next(); err != nil {
			return err
		}
	}
	if _, err := r.file.WriteAt(r.buf, r.size); err != nil {
		// Readers would stop at an incomplete record. If this fails too, the next write starts at the same offset.
		_ = r.file.Truncate(r.size)
		return errors.Wrap(err, "writing blocked packets")
	}
	r.size += int64(len(r.buf))
	return nil
}

// inPlace reports whether there is a file to write to that has not been moved or removed.
func (r *recording) inPlace() bool {
	if r.file == nil {
		return false
	}
	open, err := r.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(r.path)
	return err == nil && os.SameFile(open, there)
}

// next starts a new file and renames the previous one.
func (r *recording) next() error {
	r.drop()
	if err := os.Rename(r.path, r.path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Wrap(err, "putting the last capture aside")
	}
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Wrap(err, "beginning a capture")
	}
	var head [captureHeader]byte
	binary.NativeEndian.PutUint32(head[0:], captureMagic)
	binary.NativeEndian.PutUint16(head[4:], 2)
	binary.NativeEndian.PutUint16(head[6:], 4)
	binary.NativeEndian.PutUint32(head[16:], snapLength)
	binary.NativeEndian.PutUint32(head[20:], linkTypeRaw)
	if _, err := f.Write(head[:]); err != nil {
		_ = f.Close()
		_ = os.Remove(r.path) // otherwise it would replace the previous one later
		return errors.Wrap(err, "beginning a capture")
	}
	r.file, r.size = f, captureHeader
	return nil
}

// run writes the buffer periodically until done is closed.
func (r *recording) run(done <-chan struct{}) {
	tick := time.NewTicker(recordingPeriod)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			r.sync()
		}
	}
}
