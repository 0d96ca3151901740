package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// needed are the modules that reach the root file system and this program.
var needed = []string{"virtio_pci", "virtio_console", "virtiofs", "overlay"}

// initrd returns what a machine begins with: this program, what it is to do, and modules in the order to load them in.
func initrd(k kernel, j job) ([]byte, error) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(k.modules(), k.version)
	dependencies, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	var a archive
	a.add("init", 0o100755, program)
	a.add("modules", 0o040755, nil)
	for _, file := range loadOrder(string(dependencies), needed) {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		name := path.Base(file)
		a.add("modules/"+name, 0o100644, content)
		j.Load = append(j.Load, name)
	}
	todo, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	a.add("job.json", 0o100600, todo)
	return a.bytes(), nil
}

// loadOrder returns the files of modules and of what they depend on, each behind what it depends on. Modules that are
// not in modules.dep are a part of the kernel.
func loadOrder(dependencies string, modules []string) (files []string) {
	lines := map[string][]string{}
	for line := range strings.Lines(dependencies) {
		file, others, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, _, _ := strings.Cut(path.Base(file), ".")
		// The last one is to be loaded first.
		lines[strings.ReplaceAll(name, "-", "_")] = append([]string{file}, strings.Fields(others)...)
	}
	seen := map[string]bool{}
	for _, m := range modules {
		all := lines[m]
		for i := len(all) - 1; i >= 0; i-- {
			if !seen[all[i]] {
				seen[all[i]] = true
				files = append(files, all[i])
			}
		}
	}
	return files
}

// archive is a cpio archive, as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct{ out bytes.Buffer }

// add adds a file or a directory. A directory comes before what is in it.
func (a *archive) add(name string, mode int, content []byte) {
	inode := a.out.Len() + 1
	fmt.Fprintf(&a.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.out.Write(content)
	a.pad()
}

func (a *archive) pad() { a.out.Write(make([]byte, -a.out.Len()&3)) }

// bytes ends the archive.
func (a *archive) bytes() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.out.Bytes()
}
