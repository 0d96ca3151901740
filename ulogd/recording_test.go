package ulogd

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"
)

// recorder records into a directory of the test's.
func recorder(t *testing.T, size int64) *recording {
	t.Helper()
	c := Config{Groups: testGroups(), Recording: filepath.Join(t.TempDir(), "blocked.pcap"), RecordingSize: size, Stats: new(Stats),
		Log: slog.New(&logBook{})}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return newRecording(c)
}

// recorded are the packets of a capture file, read by another reader than ours, and the size of the file.
func recorded(t *testing.T, path string) ([][]byte, int64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var packets [][]byte
	for {
		b, info, err := r.ReadPacketData()
		if err == io.EOF {
			return packets, int64(len(text))
		}
		if err != nil {
			t.Fatalf("%s, after %d packets: %v", path, len(packets), err)
		}
		if info.Timestamp.Year() != 2026 || info.Length < len(b) {
			t.Fatalf("packet %d: %+v", len(packets), info)
		}
		packets = append(packets, b)
	}
}

var recordedAt = time.Date(2026, 2, 3, 4, 5, 6, 789012000, time.UTC)

// TestRecordingIsBounded: the files together stay below their size, and have the last packets in order.
func TestRecordingIsBounded(t *testing.T) {
	const size, packets = 1 << 20, 20000
	r := recorder(t, size)
	for i := range packets {
		b := make([]byte, 128)
		copy(b, fmt.Sprint(i))
		r.add(recordedAt, b, 1500)
	}
	r.close()
	older, n := recorded(t, r.path+".1")
	newer, m := recorded(t, r.path)
	if n > size/2 || m > size/2 {
		t.Errorf("files of %d and %d bytes, together at most %d", n, m, size)
	}
	all := slices.Concat(older, newer)
	if len(all) < size/2/(128+recordHeader) {
		t.Errorf("only %d packets are kept", len(all))
	}
	for i, b := range all {
		if got, want := strings.TrimRight(string(b), "\x00"), fmt.Sprint(packets-len(all)+i); got != want {
			t.Fatalf("packet %d of %d is %s, not %s", i, len(all), got, want)
		}
	}
	files, err := os.ReadDir(filepath.Dir(r.path))
	if err != nil || len(files) != 2 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// TestRecordingGoesOn after a start: what was recorded before is kept as the older file.
func TestRecordingGoesOn(t *testing.T) {
	first := recorder(t, minRecordingSize)
	first.add(recordedAt, []byte("first"), 5)
	first.close()
	c := Config{Groups: testGroups(), Recording: first.path, RecordingSize: minRecordingSize, Stats: new(Stats), Log: slog.Default()}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	second := newRecording(c)
	second.add(recordedAt, []byte("second"), 6)
	second.sync() // readers need not wait for the end
	older, _ := recorded(t, first.path+".1")
	newer, _ := recorded(t, first.path)
	if len(older) != 1 || string(older[0]) != "first" || len(newer) != 1 || string(newer[0]) != "second" {
		t.Errorf("%q, then %q", older, newer)
	}
	if err := os.Remove(first.path); err != nil { // as a cleanup job does
		t.Fatal(err)
	}
	second.add(recordedAt, []byte("third"), 5)
	second.close()
	if newer, _ := recorded(t, first.path); len(newer) != 1 || string(newer[0]) != "third" {
		t.Errorf("after the file was removed: %q", newer)
	}
	tool, err := exec.LookPath("tcpdump")
	if err != nil {
		return // another reader has read it
	}
	out, err := exec.Command(tool, "-n", "-r", first.path).CombinedOutput()
	if err != nil {
		t.Errorf("tcpdump: %v: %s", err, out)
	}
}

// TestRecordingOverwritesNothing that is no capture.
func TestRecordingOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"text":      func(path string) error { return os.WriteFile(path, []byte("contents of another program"), 0o600) },
		"short":     func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		for _, suffix := range []string{"", ".1"} {
			t.Run(name+suffix, func(t *testing.T) {
				path := filepath.Join(dir, fmt.Sprint(name, len(suffix)))
				if err := make(path + suffix); err != nil {
					t.Fatal(err)
				}
				if err := (Config{Groups: testGroups(), Recording: path, RecordingSize: minRecordingSize}).Check(); err == nil {
					t.Error("no error")
				}
			})
		}
	}
	if err := (Config{Groups: testGroups(), Recording: filepath.Join(dir, "new"), RecordingSize: 1000}).Check(); err == nil {
		t.Error("no error for a file of 500 bytes")
	}
}

// TestRecordingThatFails counts what it cannot write, says so once, and goes on when it can.
func TestRecordingThatFails(t *testing.T) {
	r := recorder(t, minRecordingSize)
	book := &logBook{}
	r.log = slog.New(book)
	dir := filepath.Dir(r.path)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.add(recordedAt, []byte("lost"), 4)
		r.sync()
	}
	if n := r.stat.Unrecorded.Load(); n != 2 {
		t.Errorf("%d packets are counted as lost, not 2", n)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	r.failed = time.Time{}
	r.add(recordedAt, []byte("kept"), 4)
	r.close()
	if got, _ := recorded(t, r.path); len(got) != 1 || string(got[0]) != "kept" {
		t.Errorf("recorded: %q", got)
	}
	if n, m := len(book.find("are not recorded")), len(book.find("recorded again")); n != 1 || m != 1 {
		t.Errorf("the log says %d times that it fails and %d times that it does not", n, m)
	}
}

// TestRecordingOnAFullDisk ends with a complete record.
func TestRecordingOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mounting a small file system (are you root?): %v", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	c := Config{Recording: filepath.Join(dir, "blocked.pcap"), RecordingSize: 1 << 20, Stats: new(Stats), Log: slog.New(&logBook{})}
	r := newRecording(c)
	const packets = 100
	for range packets {
		r.add(recordedAt, make([]byte, 1000), 1000)
		r.sync()
	}
	r.close()
	got, _ := recorded(t, r.path)
	if lost := c.Stats.Unrecorded.Load(); len(got) == 0 || lost == 0 || len(got)+int(lost) != packets {
		t.Errorf("%d packets recorded, %d lost, of %d", len(got), lost, packets)
	}
}

// TestRecordingKeepsTheLastFile while there is no room to begin another.
func TestRecordingKeepsTheLastFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mounting a small file system (are you root?): %v", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	c := Config{Recording: filepath.Join(dir, "blocked.pcap"), RecordingSize: 1 << 20, Stats: new(Stats), Log: slog.New(&logBook{})}
	first := newRecording(c)
	first.add(recordedAt, []byte("first"), 5)
	first.close()
	// Fill the rest of the file system.
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the file system is not small")
	}
	second := newRecording(c)
	for range 3 {
		second.add(recordedAt, []byte("second"), 6)
		second.sync()
		second.failed = time.Time{}
	}
	if got, _ := recorded(t, c.Recording+".1"); len(got) != 1 || string(got[0]) != "first" {
		t.Errorf("what was recorded before is %q", got)
	}
	if n := c.Stats.Unrecorded.Load(); n != 3 {
		t.Errorf("%d packets are counted as lost, not 3", n)
	}
}
