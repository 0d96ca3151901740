package flowlog

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
)

// recordSize is how many bytes of a file there are for each record that a store may hold. Most need a third.
const recordSize = 2048

// File keeps a store's records over a restart, as lines of JSON, in at most 2 KiB for each record that the store may
// hold. A second file keeps the hits of rules, in at most 10 MiB.
type File struct {
	path, hits string
	store      *Store
	saved      [2]uint64 // what of the store is in the file
	savedHits  uint64
}

// NewFile returns the file of a store in a directory, which is made if it is not there.
func NewFile(directory string, s *Store) (*File, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, errors.Wrap(err, "making the directory of recorded connections")
	}
	path, hits := filepath.Join(directory, "flows.json"), filepath.Join(directory, "hits.json")
	return &File{path: path, hits: hits, store: s}, nil
}

// Load adds the file's records to the store, which must be empty. It returns how many lines are no records, which are
// passed over.
func (f *File) Load() (skipped int, err error) {
	in, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, errors.Wrap(err, "reading recorded connections")
	}
	defer in.Close()
	var records []Record
	none, err := Read(in, func(r Record) error {
		if r.Count > 0 && r.Replied <= r.Count { // as a store writes them
			records = append(records, r)
		} else {
			skipped++
		}
		return nil
	})
	if skipped += none.Lines; err != nil {
		return skipped, errors.Wrap(err, "reading recorded connections")
	}
	f.store.restore(records)
	f.saved = f.store.state()
	return skipped, nil
}

// LoadHits has the store go on with the hits that were kept, if there are any. After an error, it counts from the start
// of the store on.
func (f *File) LoadHits() error {
	in, err := os.Open(f.hits)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errors.Wrap(err, "reading hits of rules")
	}
	defer in.Close()
	h, err := ReadHits(io.LimitReader(in, maxRules*hitSize))
	if err != nil {
		return errors.Wrap(err, "reading hits of rules")
	}
	f.store.restoreHits(h)
	return nil
}

// Save replaces the files if the store has changed. It is atomic: a reader, or a process that ends while it writes, has
// the former file or the new one. It returns how many of the oldest records exceeded the limit and were omitted.
func (f *File) Save() (omitted int, err error) {
	if state := f.store.state(); state != f.saved {
		records, _ := f.store.Since(0)
		err := replace(f.path, func(out io.Writer) (err error) {
			omitted, err = writeRecords(out, records, f.store.limit*recordSize)
			return err
		})
		if err != nil {
			return 0, errors.Wrap(err, "keeping recorded connections")
		}
		f.saved = state
	}
	hits, version := f.store.hitsSince(f.savedHits)
	if version == f.savedHits {
		return omitted, nil
	}
	if err := replace(f.hits, func(out io.Writer) error { return WriteHits(out, hits) }); err != nil {
		return omitted, errors.Wrap(err, "keeping hits of rules")
	}
	f.savedHits = version
	return omitted, nil
}

// replace writes a file and gives it its name when it is whole.
func replace(path string, write func(io.Writer) error) error {
	next := path + ".new"
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = write(out)
	if err == nil {
		err = out.Sync()
	}
	if e := out.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	return err
}

// writeRecords writes records, the newest first, as long as they have room.
func writeRecords(out io.Writer, records []Record, room int) (omitted int, err error) {
	buffered := bufio.NewWriter(out)
	for i, r := range slices.Backward(records) {
		line, err := json.Marshal(r)
		if err != nil {
			return 0, err
		}
		if room -= len(line) + 1; room < 0 {
			return i + 1, buffered.Flush()
		}
		_, _ = buffered.Write(append(line, '\n')) // Flush has the error
	}
	return 0, buffered.Flush()
}

// restore adds records, in the order of their last connections.
func (s *Store) restore(records []Record) {
	slices.SortStableFunc(records, func(a, b Record) int { return a.Last.Compare(b.Last) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		k := keyOf(&r)
		if former := s.records[k]; former != nil { // not in a file of ours
			former.unlink()
			delete(s.records, k)
		}
		r.From.Labels, r.To.Labels = s.share(k.from.workload, r.From.Labels), s.share(k.to.workload, r.To.Labels)
		e := &entry{key: k, Record: r}
		s.records[k] = e
		s.push(e)
	}
}

// state returns what changes whenever a record does.
func (s *Store) state() [2]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [2]uint64{s.version, s.changes}
}
