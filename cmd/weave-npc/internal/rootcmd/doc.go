// Package rootcmd puts the commands together: weave-npc, the daemon on Linux, and the plug-in for kubectl.
//
//	root := rootcmd.Command()
//	ran, err := root.ExecuteContextC(ctx)
//
// The program, and what writes its manual, take them from here. What needs the kernel is added in a file for Linux
// alone. Elsewhere both commands only answer what policies allow.
package rootcmd
