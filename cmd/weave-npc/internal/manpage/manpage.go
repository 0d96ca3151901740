// Package manpage writes manual pages of commands, as man reads them.
//
//	for _, p := range manpage.Pages(root, manpage.Edition{Program: "weave-npc v1.2.3", Day: "2026-11-23"}) {
//		os.WriteFile(p.File, p.Text, 0o644)
//	}
//
// It is no part of the program: manuals are made once for a release. The same commands give the same pages.
package manpage

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
)

// Edition is what all pages have at their foot.
type Edition struct{ Program, Day string }

// Page is a page, and the name of its file.
type Page struct {
	File string
	Text []byte
}

// section is that of what users run.
const section = "1"

// Pages returns a page for a command, and one for each of its subcommands.
func Pages(cmd *cobra.Command, e Edition) []Page {
	pages := []Page{{File: name(cmd) + "." + section, Text: write(cmd, e)}}
	for _, sub := range subcommands(cmd) {
		pages = append(pages, Pages(sub, e)...)
	}
	return pages
}

// subcommands returns those that have a page: all but help, which has the same to say.
func subcommands(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, sub)
		}
	}
	return all
}

// name returns what a page is called, as man asks for it: kubectl-npc-explain.
func name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// write returns the page of a command.
func write(cmd *cobra.Command, e Edition) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s %s %s %s\n", quoted(strings.ToUpper(name(cmd))), section, quoted(e.Day), quoted(e.Program))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", text(name(cmd)), text(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", text(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	writeText(&b, about)
	writeFlags(&b, cmd)
	if !strings.Contains(cmd.Long, "exit status") {
		fmt.Fprintf(&b, ".SH EXIT STATUS\n%s\n", text(commandline.ExitStatus(cmd)))
	}
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n")
		for line := range strings.Lines(cmd.Example) {
			b.WriteString(text(strings.TrimPrefix(strings.TrimRight(line, "\n"), "  ")) + "\n")
		}
		b.WriteString(".fi\n")
	}
	writeOthers(&b, cmd)
	return b.Bytes()
}

// writeText writes paragraphs. What is indented keeps its lines.
func writeText(b *bytes.Buffer, long string) {
	literal := false
	for line := range strings.Lines(strings.TrimSpace(long)) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case indented && !literal:
			b.WriteString(".nf\n")
		case !indented && literal:
			b.WriteString(".fi\n")
		}
		literal = indented
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(text(line) + "\n")
	}
	if literal {
		b.WriteString(".fi\n")
	}
}

// writeFlags writes the flags of a command, and by which variables they can be given.
func writeFlags(b *bytes.Buffer, cmd *cobra.Command) {
	written := 0
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if written == 0 {
			b.WriteString(".SH OPTIONS\n")
		}
		written++
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", text(f.Shorthand))
		}
		kind, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(b, "\\fB%s\\fR", text("--"+f.Name))
		if kind != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", text(strings.ToUpper(kind)))
		}
		b.WriteString("\n" + text(usage))
		if value := strings.Trim(f.DefValue, "[]"); value != "" && value != "false" && value != "0" {
			b.WriteString(text(" (default " + value + ")"))
		}
		b.WriteString("\n")
	})
	if written > 0 {
		fmt.Fprintf(b, ".SH ENVIRONMENT\n%s\n", text("Each option can be given as a variable, which begins with "+commandline.Variable("")+
			" and has the name of the option in capitals, with underscores for dashes."))
	}
}

// writeOthers names the pages of the commands above and below.
func writeOthers(b *bytes.Buffer, cmd *cobra.Command) {
	var others []string
	if cmd.HasParent() {
		others = append(others, text(name(cmd.Parent()))+"("+section+")")
	}
	for _, sub := range subcommands(cmd) {
		others = append(others, text(name(sub))+"("+section+")")
	}
	if len(others) > 0 {
		fmt.Fprintf(b, ".SH SEE ALSO\n%s\n", strings.Join(others, ",\n"))
	}
}

// escapes is what troff would not print as it is.
var escapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`)

// text returns one line as troff prints it, also if it begins as a request does.
func text(line string) string {
	line = escapes.Replace(line)
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}

// quoted returns one argument of a request.
func quoted(s string) string { return `"` + strings.ReplaceAll(text(s), `"`, `\(dq`) + `"` }
