// Package calls records the calls of functions of this repository, in a program whose functions call Enter first.
//
//	calls.Start()
//	...                 // functions that call Enter
//	for _, c := range calls.Stop() { fmt.Println(c.Depth, c.Function, c.Caller) }
package calls

import (
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Module is the path of this repository's packages.
const Module = "github.com/weave-npc/weave-npc/"

// Call is a call of a function of this repository.
type Call struct {
	// Function and Caller are named as the runtime names them. Caller is the function of this repository that is next
	// on the stack; empty if there is none.
	Function, Caller string
	// Depth is the number of functions of this repository that are on the stack above the function.
	Depth int
	// Goroutine is what the runtime calls the goroutine of the call.
	Goroutine string
}

// recorder records calls while it is on.
type recorder struct {
	mu    sync.Mutex // guards the fields below
	on    bool
	calls []Call
}

var recorded recorder

// Start begins recording.
func Start() {
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	recorded.on, recorded.calls = true, nil
}

// Stop ends recording and returns the calls, in order.
func Stop() []Call {
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	recorded.on = false
	return recorded.calls
}

// Called reports whether a function has been called since Start. Its name is given without Module.
func Called(function string) bool {
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	return slices.ContainsFunc(recorded.calls, func(c Call) bool { return c.Function == Module+function })
}

// Enter records the call of the function that calls it.
func Enter() {
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	if !recorded.on {
		return
	}
	var pcs [128]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	frame, more := frames.Next()
	c := Call{Function: frame.Function}
	for more {
		frame, more = frames.Next()
		if !strings.HasPrefix(frame.Function, Module) {
			continue
		}
		if c.Depth++; c.Caller == "" {
			c.Caller = frame.Function
		}
	}
	c.Goroutine = goroutine()
	recorded.calls = append(recorded.calls, c)
}

// goroutine returns the number by which the runtime's stack traces name the goroutine that calls it.
func goroutine() string {
	var trace [64]byte
	title := string(trace[:runtime.Stack(trace[:], false)])
	return strings.Fields(title)[1]
}
