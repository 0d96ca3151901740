package ulogd

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"

	"github.com/pkg/errors"
)

// The capture format (pcap, version 2.4) as ulogd2 writes it: in this machine's byte order, in microseconds.
const (
	captureMagic      = 0xa1b2c3d4
	captureVersion    = 2 | 4<<16 // as one little-endian word; major and minor are 16 bits each
	captureVersionBig = 2<<16 | 4
	captureHeader     = 24
	recordHeader      = 16
	linkTypeRaw       = 101
	// recordMax is far above what NFLOG can copy, 64 KiB: a larger record means that we lost our place.
	recordMax = 1 << 20
)

// captureReader reads a stream of pcap records. pcapgo's reader will not do here: it refuses a record that is longer than
// what the record header gives as the packet's length, which ulogd2 writes for packets whose IP header gives no length
// or a wrong one, so that one such packet would end the log.
type captureReader struct {
	in  *bufio.Reader
	buf []byte
}

// newCaptureReader reads the file header; it returns io.EOF if there is none.
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

// isCaptureHeader says whether b begins a capture. It cannot be mistaken for a record: as a time it is in 2056.
func isCaptureHeader(b []byte) bool {
	version := binary.NativeEndian.Uint32(b[4:])
	return binary.NativeEndian.Uint32(b) == captureMagic && (version == captureVersion || version == captureVersionBig)
}

// next returns the next packet, which is valid until the following call. At the end of the stream, also in the midst of
// a record, it returns io.EOF.
func (r *captureReader) next() (time.Time, []byte, error) {
	head := r.buf[:recordHeader]
	if err := r.fill(head); err != nil {
		return time.Time{}, nil, err
	}
	if isCaptureHeader(head) { // ulogd2 was told to reopen its files, and begins anew
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

func (r *captureReader) fill(b []byte) error {
	_, err := io.ReadFull(r.in, b)
	if err == io.ErrUnexpectedEOF {
		return io.EOF
	}
	return err
}
