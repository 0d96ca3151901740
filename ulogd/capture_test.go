package ulogd

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// capture writes a capture file of packets, all of the same time.
func capture(t testing.TB, at time.Time, packets ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(p), Length: len(p)}, p); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// records reads all packets of a capture.
func records(in []byte) ([]string, time.Time, error) {
	r, err := newCaptureReader(bytes.NewReader(in))
	if err != nil {
		return nil, time.Time{}, err
	}
	var all []string
	var last time.Time
	for {
		at, b, err := r.next()
		if err != nil {
			return all, last, err
		}
		all, last = append(all, string(b)), at
	}
}

func TestCaptureReader(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 789012000, time.UTC)
	big := bytes.Repeat([]byte("x"), 60000)
	whole := capture(t, at, []byte("one"), nil, big)
	longer := capture(t, at, []byte("one"), []byte("two"))
	binary.NativeEndian.PutUint32(longer[captureHeader+12:], 0) // the packet's length, less than what is captured
	huge := capture(t, at, []byte("one"))
	binary.NativeEndian.PutUint32(huge[captureHeader+8:], 1<<31)
	cases := []struct {
		name string
		in   []byte
		want []string
		end  bool // io.EOF, not another error
	}{
		{"whole", whole, []string{"one", "", string(big)}, true},
		{"no packets", capture(t, at), nil, true},
		{"cut in a record", whole[:len(whole)-1], []string{"one", ""}, true},
		{"cut in a record's header", whole[:captureHeader+recordHeader+3+5], []string{"one"}, true},
		{"begun again", append(capture(t, at, []byte("one")), capture(t, at, []byte("two"))...), []string{"one", "two"}, true},
		{"captured more than the packet's length", longer, []string{"one", "two"}, true},
		{"record of 2 GiB", huge, nil, false},
		{"nothing", nil, nil, true},
		{"another link type", func() []byte { b := capture(t, at); b[20] = 1; return b }(), nil, false},
		{"no capture", make([]byte, 100), nil, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, last, err := records(c.in)
			if (err == io.EOF) != c.end {
				t.Errorf("ended with %v", err)
			}
			if len(got) != len(c.want) {
				t.Fatalf("%d packets, want %d", len(got), len(c.want))
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("packet %d: %.20q, want %.20q", i, got[i], c.want[i])
				}
			}
			if len(got) > 0 && !last.Equal(at) {
				t.Errorf("time %s, want %s", last, at)
			}
		})
	}
}

func FuzzCaptureReader(f *testing.F) {
	at := time.Unix(1, 0)
	f.Add(capture(f, at, []byte("one"), []byte("two")))
	f.Add(append(capture(f, at, []byte("one")), capture(f, at)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		all, _, err := records(in)
		size := 0
		for _, s := range all {
			size += len(s) + recordHeader
		}
		if err == nil || size > len(in) {
			t.Errorf("%d bytes of records from %d bytes, %v", size, len(in), err)
		}
	})
}
