// Package recordings has the commands that work on recorded connections: replay and propose.
//
//	root.AddCommand(recordings.Replay(policies), recordings.Propose())
//
// It does not know how connections are recorded, nor where policies come from that a recording is replayed against.
package recordings
