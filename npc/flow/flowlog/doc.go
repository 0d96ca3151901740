// Package flowlog holds records of connections from and to pods, in memory and in files of JSON lines.
//
//	Add ─▶ Store: records (record), at most a number of them ─▶ Since, Hits
//	         ├─ hits      how often rules decided
//	         ├─ replies   connections that no reply is known of yet
//	         └─ staged    what groups of staged policies would do
//	       File ◀─▶ a directory, over a restart
//	Read, Write    records as lines; labels has those that the pods of a workload share
//
//	s := flowlog.NewStore("node1", 20000)
//	s.Add(time.Now(), evaluator, flowlog.Allowed, opened)
//	records, at := s.Since(0)
//
// It does not know where records come from, nor how policies would decide them.
package flowlog
