// Package output turns answers into what the commands print: aligned tables, indented text, JSON and YAML.
//
//	Explanation       of explain, with advice and the kernel's verdict
//	Pods, Policies    of show, with staged policies and the hits of rules
//	Sets, Rules       of the kernel
//	Changes           of replay
//
// It must not find anything out: everything that is printed is in the values that it is given.
//
//	err := output.Pods(os.Stdout, "table", explain.Pods(view, "shop"))
//	err := output.Explanation(os.Stdout, "yaml", x)
package output
