package cli

import (
	"github.com/pkg/errors"
	"github.com/spf13/cobra"
)

// ErrNo is the error of a command whose answer is no, or that something differs, after the answer is printed.
var ErrNo = errors.New("no")

// The exit statuses of a command that fails. One that answers has another status for an error than for the answer no.
const (
	statusNo      = 1
	statusFailed  = 1
	statusUnknown = 2
)

// answers marks commands that answer a question.
const answers = "answers"

// Answers marks a command, and its subcommands, as one that answers a question: its exit status is 2 after an error. It
// returns the command.
func Answers(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[answers] = "true"
	return cmd
}

// Status returns the exit status after an error of the command that ran.
func Status(ran *cobra.Command, err error) int {
	if errors.Is(err, ErrNo) {
		return statusNo
	}
	if isAnswer(ran) {
		return statusUnknown
	}
	return statusFailed
}

// isAnswer reports whether a command is one that Answers marked.
func isAnswer(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd.Annotations[answers] != "" {
			return true
		}
	}
	return false
}

// ExitStatus returns what help and manuals say about the exit status of a command, a sentence.
func ExitStatus(cmd *cobra.Command) string {
	if Status(cmd, errors.New("")) == statusUnknown {
		return "0 after an answer, 1 if the answer is no or something differs, 2 after an error."
	}
	return "0, or 1 after an error."
}
