package ulogd

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"

	"github.com/pkg/errors"
)

// The capture format (pcap, version 2.4) as ulogd2 writes it: in native byte order, with microseconds.
const (
	captureMagic      = 0xa1b2c3d4
	captureVersion    = 2 | 4<<16 // as one little-endian word; major and minor are 16 bits each
	captureVersionBig = 2<<16 | 4
	captureHeader     = 24
	recordHeader      = 16
	linkTypeRaw       = 101
	// recordMax is far above the 64 KiB that NFLOG can copy: a larger record means that the stream is out of step.
	recordMax = 1 << 20
)

// captureReader reads a stream of pcap records. pcapgo's reader rejects a record that is longer than the packet's
// length in the record header. ulogd2 writes such records for packets with no or a wrong length in their IP header, so
// that one such packet would end the log.
type captureReader struct {
	in  *bufio.Reader
	buf []byte
}

// newCaptureReader reads the file header. It returns io.EOF if there is none.
func newCaptureReader(in io.Reader) (*captureReader, error) {
	r := &captureReader{in: bufio.NewReaderSize(in, 1<<16), buf: make([]byte, 1<<12)}
	head := r.buf[:captureHeader]
	if _, err := io.ReadFull(r.in, head); err != nil {
		return nil, err
	}
	if !isCaptureHeader(head) {
		return nil, errors.Errorf("not a capture: it begins with %x", head)
	}
	if link := binary.NativeEndian.Uint32(head[20:]); link != linkTypeRaw {
		return nil, errors.Errorf("a capture of link type %d, not of raw IP packets", link)
	}
	return r, nil
}

// isCaptureHeader reports whether b is the start of a capture. A record cannot look like one: its time would be in
// 2056.
func isCaptureHeader(b []byte) bool {
	version := binary.NativeEndian.Uint32(b[4:])
	return binary.NativeEndian.Uint32(b) == captureMagic && (version == captureVersion || version == captureVersionBig)
}

// next returns the next packet, which is valid until the following call. At the end of the stream, even within a
// record, it returns io.EOF.
func (r *captureReader) next() (time.Time, []byte, error) {
	head := r.buf[:recordHeader]
	if err := r.fill(head); err != nil {
		return time.Time{}, nil, err
	}
	if isCaptureHeader(head) { // ulogd2 got the signal to reopen its files, and starts a new capture
		if _, err := r.in.Discard(captureHeader - recordHeader); err != nil {
			return time.Time{}, nil, err
		}
		if err := r.fill(head); err != nil {
			return time.Time{}, nil, err
		}
	}
	at := time.Unix(int64(binary.NativeEndian.Uint32(head)), int64(binary.NativeEndian.Uint32(head[4:]))*1000).UTC()
	size := binary.NativeEndian.Uint32(head[8:])
	if size > recordMax {
		return time.Time{}, nil, errors.Errorf("a record of %d bytes", size)
	}
	if int(size) > len(r.buf) {
		r.buf = make([]byte, size)
	}
	packet := r.buf[:size]
	return at, packet, r.fill(packet)
}

// fill reads len(b) bytes.
func (r *captureReader) fill(b []byte) error {
	_, err := io.ReadFull(r.in, b)
	if err == io.ErrUnexpectedEOF {
		return io.EOF
	}
	return err
}
