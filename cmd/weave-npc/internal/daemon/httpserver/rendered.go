package httpserver

import (
	"bytes"
	"context"
	"net/http"
)

// maxScrapes is the number of answers with metrics that are made at a time.
const maxScrapes = 8

// rendered returns a handler that makes answers in memory, a few at a time, and sends them then: a client that reads
// slowly keeps no other from its answer. Requests that wait for too long are refused.
func rendered(next http.Handler) http.Handler {
	turns := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waiting, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		select {
		case turns <- struct{}{}:
		case <-waiting.Done():
			http.Error(w, "too many requests for metrics at a time", http.StatusServiceUnavailable)
			return
		}
		answer := &answer{ResponseWriter: w}
		func() {
			defer func() { <-turns }()
			next.ServeHTTP(answer, r)
		}()
		if answer.status != 0 {
			w.WriteHeader(answer.status)
		}
		_, _ = w.Write(answer.body.Bytes()) // the client may be gone
	})
}

// answer holds an answer in memory; its header is that of the ResponseWriter.
type answer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
