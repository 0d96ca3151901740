package ports

import "github.com/weave-npc/weave-npc/iptables"

// Tables are the tables in the network namespace of the calling thread.
type Tables struct{}

// Read calls the function of this name.
func (Tables) Read() (s State, whole bool, err error) { return Read() }

// Write calls the function of this name.
func (Tables) Write(have, want State, whole bool) error { return Write(have, want, whole) }

// Generation returns a number that changes with every change of the tables. It changes with those of others, too.
func (Tables) Generation() (uint32, error) { return iptables.Generation() }

// Forged calls the function of this name.
func (Tables) Forged() ([]Forgery, error) { return Forged() }

// Dropped calls the function of this name.
func (Tables) Dropped() (map[Reason]uint64, error) { return Dropped() }
