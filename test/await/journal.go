package await

import (
	"bytes"
	"strings"
	"sync"
)

// Journal is a log that tests read while it is written.
type Journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// Count returns the number of lines with a text.
func (j *Journal) Count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for line := range strings.Lines(j.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
