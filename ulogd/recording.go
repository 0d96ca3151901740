package ulogd

import (
	"encoding/binary"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	// recordingBuffer is how much is kept before it is written, recordingPeriod how long.
	recordingBuffer = 64 << 10
	recordingPeriod = time.Second
	// recordingSize is the least that a recording may be bounded to, in bytes.
	recordingSize = 2 * recordingBuffer
	// recordingRetry is how long a recording rests that failed.
	recordingRetry = 10 * time.Second
	// snapLength is what the header says of the longest record.
	snapLength = 262144
)

// recording keeps the last logged packets in two capture files: the present one and, by the same name with .1 behind it, the one before.
type recording struct {
	path string
	half int64 // most bytes of either file
	log  *slog.Logger
	stat *Stats

	mu      sync.Mutex
	file    *os.File // nil while there is none to write to
	size    int64    // of the file, complete records only
	buf     []byte   // complete records that are not written yet
	records uint64   // in buf
	failed  time.Time
	saidBad bool
}

// checkRecording refuses to record to a path that cannot be recorded to, or where there is something else.
func checkRecording(path string, size int64) error {
	if size < recordingSize {
		return errors.Errorf("%d bytes are too few for a recording, %d are the least", size, recordingSize)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return errors.Wrap(err, "looking for the directory to record to")
	}
	for _, p := range []string{path, path + ".1"} {
		f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return errors.Wrap(err, "looking at what is to be recorded to")
		}
		head := make([]byte, captureHeader)
		info, err := f.Stat()
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			_, err = io.ReadFull(f, head)
		}
		closeFiles([]*os.File{f})
		if err != nil || !info.Mode().IsRegular() || info.Size() > 0 && !isCaptureHeader(head) {
			return errors.Errorf("%s is there and is no capture: it will not be overwritten", p)
		}
	}
	return nil
}

// newRecording records as c says; nil if it says nothing.
func newRecording(c Config) *recording {
	if c.Recording == "" {
		return nil
	}
	return &recording{path: c.Recording, half: c.RecordingSize / 2, log: c.Log, stat: c.Stats}
}

// add records a packet that was length bytes long.
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

// sync writes what was added.
func (r *recording) sync() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
}

// close writes what was added, and closes the file.
func (r *recording) close() {
	if r == nil {
		return
	}
	r.sync()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
}

func (r *recording) drop() {
	if r.file != nil {
		closeFiles([]*os.File{r.file})
		r.file = nil
	}
}

// flush writes the buffer, such that the file always ends with a complete record. What cannot be written is counted and lost.
func (r *recording) flush() {
	if len(r.buf) == 0 {
		return
	}
	err := r.write()
	if err != nil {
		r.stat.Unrecorded.Add(r.records)
		if !r.saidBad {
			r.log.Warn("blocked packets are not recorded, trying again", "file", r.path, "err", err)
		}
		r.saidBad, r.failed = true, time.Now()
	} else if r.saidBad {
		r.log.Info("blocked packets are recorded again", "file", r.path)
		r.saidBad = false
	}
	r.buf, r.records = r.buf[:0], 0
}

func (r *recording) write() error {
	if r.saidBad && time.Since(r.failed) < recordingRetry {
		return errors.New("a moment ago it failed")
	}
	if !r.inPlace() || r.size+int64(len(r.buf)) > r.half {
		if err := r.next(); err != nil {
			return err
		}
	}
	if _, err := r.file.WriteAt(r.buf, r.size); err != nil {
		// Half a record would end the file for whoever reads it. Should this fail too, the next write begins in the same place.
		_ = r.file.Truncate(r.size)
		return errors.Wrap(err, "writing blocked packets")
	}
	r.size += int64(len(r.buf))
	return nil
}

// inPlace says whether there is a file to write to that nobody has moved or removed.
func (r *recording) inPlace() bool {
	if r.file == nil {
		return false
	}
	ours, err := r.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(r.path)
	return err == nil && os.SameFile(ours, there)
}

// next begins a new file, beside the last one.
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
		closeFiles([]*os.File{f})
		_ = os.Remove(r.path) // else it would take the place of the one before
		return errors.Wrap(err, "beginning a capture")
	}
	r.file, r.size = f, captureHeader
	return nil
}

// run writes what was added now and then, until done is closed.
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
