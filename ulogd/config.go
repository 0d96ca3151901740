package ulogd

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// minRecordingSize is the minimum of Config.RecordingSize in bytes.
const minRecordingSize = 128 << 10

// Config configures Run: the NFLOG groups to read and how to run ulogd2. All fields except Groups may be zero.
type Config struct {
	// Groups are the NFLOG groups to read, at least one, each in the network namespace that Run is called in.
	Groups []Group
	// Mark is the mark of the packets to report, below 1<<31. Packets without it are ignored: another program logs
	// them.
	Mark uint32
	// Binary is the path of ulogd2's executable. If it is empty, PATH and the usual directories are searched.
	Binary string
	// PluginDir is the directory of ulogd2's plug-ins. If it is empty, the directories of Debian, Ubuntu, Fedora and
	// Alpine are searched.
	PluginDir string
	// Recording is the path of a capture file (pcap, raw IP packets) for the last logged packets; empty for none. At
	// half of RecordingSize the file is renamed to end in .1, in place of the previous such file, and a new one starts.
	Recording string
	// RecordingSize is the maximum size of both files together, in bytes.
	RecordingSize int64
	// Log receives the messages of Run and of ulogd2; nil means slog.Default.
	Log *slog.Logger
	// Stats, if not nil, holds the counters that Run updates.
	Stats *Stats
}

// Group is one NFLOG group. ulogd2's pcap output does not contain the prefix of the rule, so only the group identifies
// the rule that logged a packet.
type Group struct {
	// Number is the argument of --nflog-group. 0 is an error: ulogd2 would replace the system's own packet loggers.
	Number uint16
	// Name is the value of Packet.Group for packets of this group.
	Name string
}

// Stats holds the counters of Run. They may be read at any time.
type Stats struct {
	// Packets is the number of packets passed to the handler.
	Packets atomic.Uint64
	// Undecodable is the number of logged packets without a complete IP header.
	Undecodable atomic.Uint64
	// Restarts is the number of times that ulogd2 was started again after it had ended or had not come up.
	Restarts atomic.Uint64
	// Lost is the number of packets that the kernel dropped because ulogd2's receive buffer was full. It lags by a
	// second, and does not include the last second of a process.
	Lost atomic.Uint64
	// Unrecorded is the number of packets that could not be written to the recording.
	Unrecorded atomic.Uint64
	// Running is true while ulogd2 runs and reads all groups.
	Running atomic.Bool
}

// Check returns the error that Run would return at once, or nil.
func (c Config) Check() error {
	if len(c.Groups) == 0 {
		return errors.New("no NFLOG group to read")
	}
	seen := map[uint16]bool{}
	for _, g := range c.Groups {
		if g.Number == 0 {
			return errors.Errorf("NFLOG group 0 (%q) is the system's own", g.Name)
		}
		if seen[g.Number] {
			return errors.Errorf("NFLOG group %d is given twice", g.Number)
		}
		seen[g.Number] = true
	}
	if c.Recording != "" {
		if err := checkRecording(c.Recording, c.RecordingSize); err != nil {
			return err
		}
	}
	return nil
}

// checkRecording returns an error if packets cannot be recorded to a path, or if another file is there.
func checkRecording(path string, size int64) error {
	if size < minRecordingSize {
		return errors.Errorf("%d bytes are too few for a recording, %d are the least", size, minRecordingSize)
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
		_ = f.Close()
		if err != nil || !info.Mode().IsRegular() || info.Size() > 0 && !isCaptureHeader(head) {
			return errors.Errorf("%s is there and is no capture: it will not be overwritten", p)
		}
	}
	return nil
}
