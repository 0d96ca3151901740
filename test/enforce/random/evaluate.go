package random

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// Compare expects the reference model's verdicts, and returns the number of packets that they are about.
func Compare(t *testing.T, w *e2e.Cluster, o *e2e.Objects) (cells int) {
	t.Helper()
	questions, cells := EvaluatedQuestions(t, w, o)
	w.ExpectAll(t, questions)
	w.ExplainAll(t, o, questions)
	return cells
}

// EvaluatedQuestions returns the matrices of the reference model's verdicts, and the number of packets in them.
func EvaluatedQuestions(t *testing.T, w *e2e.Cluster, o *e2e.Objects) (all []e2e.Question, cells int) {
	t.Helper()
	cluster := o.Evaluated(t, w)
	for _, q := range []struct {
		proto string
		port  uint16
	}{{"tcp", 80}, {"tcp", 81}, {"udp", 53}, {"icmp", 0}, {"sctp", 80}} {
		e2e.EachFamily(func(family int) {
			question := w.Question(t, q.proto, q.port, family, "")
			for i, from := range question.From {
				for j, to := range question.To {
					if a, b := question.Want.From[i], question.Want.To[j]; !w.Undecided(a, b) || w.IsOwnNode(a, b) {
						cells++
						question.Want.Reached[i][j] = cluster.Allowed(refmodel.Everywhere,
							e2e.PacketOf(from.Addr(family), to.Addr(family), q.proto, q.port))
					}
				}
			}
			all = append(all, question)
		})
	}
	return all, cells
}
