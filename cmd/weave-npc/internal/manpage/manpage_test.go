package manpage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/tree"
)

// TestAPageHasWhatItsCommandHas, and nothing in it is taken for a request of troff.
func TestAPageHasWhatItsCommandHas(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "Does it", Run: func(*cobra.Command, []string) {}}
	ask := &cobra.Command{Use: "ask A|B", Short: "Asks 'it'", Run: func(*cobra.Command, []string) {},
		Long:    "Asks \"it\".\n.so it does\n'br\n\nWith C:\\dir:\n\n  kept  as\n  it is",
		Example: "  tool ask a\n  tool ask b | tool -"}
	ask.Flags().BoolP("long-one", "l", false, "be `exact` - or not")
	ask.Flags().Int("count", 7, "how many")
	ask.Flags().String("secret", "", "")
	if err := ask.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	root.AddCommand(commandline.Answers(ask))
	pages := Pages(root, Edition{Program: `tool "1"`, Day: "2026-11-23"})
	if len(pages) != 2 || pages[0].File != "tool.1" || pages[1].File != "tool-ask.1" {
		t.Fatalf("%d pages", len(pages))
	}
	want := `.TH "TOOL\-ASK" 1 "2026\-11\-23" "tool \(dq1\(dq"
.SH NAME
tool\-ask \- Asks \(aqit\(aq
.SH SYNOPSIS
tool ask A|B [flags]
.SH DESCRIPTION
Asks "it".
\&.so it does
\(aqbr
.PP
With C:\edir:
.PP
.nf
  kept  as
  it is
.fi
.SH OPTIONS
.TP
\fB\-\-count\fR \fIINT\fR
how many (default 7)
.TP
\fB\-l\fR, \fB\-\-long\-one\fR \fIEXACT\fR
be exact \- or not
.SH ENVIRONMENT
Each option can be given as a variable, which begins with WEAVE_NPC_ and has the name of the option in capitals, with underscores for dashes.
.SH EXIT STATUS
0 after an answer, 1 if the answer is no or something differs, 2 after an error.
.SH EXAMPLES
.nf
tool ask a
tool ask b | tool \-
.fi
.SH SEE ALSO
tool(1)
`
	if diff := cmp.Diff(want, string(pages[1].Text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !strings.Contains(string(pages[0].Text), ".SH SEE ALSO\ntool\\-ask(1)\n") {
		t.Errorf("%s", pages[0].Text)
	}
}

// TestEveryCommandHasAPage, of the daemon and of the plug-in, with each of its flags.
func TestEveryCommandHasAPage(t *testing.T) {
	for _, root := range []*cobra.Command{tree.Command(), tree.Plugin()} {
		text := map[string]string{}
		for _, p := range Pages(root, Edition{}) {
			text[p.File] = string(p.Text)
		}
		file := strings.ReplaceAll(root.DisplayName(), " ", "-") + "-explain.1"
		for _, want := range []string{`\fB\-\-from\fR \fISTRING\fR`, `\fB\-f\fR, \fB\-\-manifests\fR`, ".SH EXAMPLES", root.DisplayName() + " explain"} {
			if !strings.Contains(strings.ReplaceAll(text[file], "weave\\-npc", "weave-npc"), want) {
				t.Errorf("%s lacks %q:\n%s", file, want, text[file])
			}
		}
		if len(text) < 9 {
			t.Errorf("%s has only %d pages", root.Name(), len(text))
		}
	}
}
