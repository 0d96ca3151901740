package manifest

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWhatAFileMayTake reads the worst files of the size that is allowed. Each allocates little, however it is written.
func TestWhatAFileMayTake(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, MaxSize/len(s)) }
	var bomb strings.Builder
	fmt.Fprintf(&bomb, "a0: &a0 %s\n", strings.Repeat("x", 1000))
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	for name, c := range map[string]struct{ text, want string }{
		"markers":           {fill("---\n"), ""},
		"ends":              {fill("...\n"), ""},
		"comments":          {fill("#\n---\n"), ""},
		"line ends":         {fill("---\r"), ""},
		"null documents":    {fill("--- ~\n"), "documents"},
		"bad documents":     {fill("---\nx: y\n"), "too many problems"},
		"tiny objects":      {"", "more than 50000 documents"},
		"a long sequence":   {"[" + fill("a,") + "a]", "fields and values"},
		"as long as can be": {"", "has no apiVersion"},
		"a long list":       {"apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {kind: A, apiVersion: v1}\n", 1<<15), ""},
		"many lines":        {fill("- a\n"), "fields and values"},
		"deep":              {fill("["), "fields and values"},
		"aliases":           {bomb.String(), "aliases"},
		"a long alias":      {"a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 1000) + "*a]\n", "aliases"},
		"itself":            {"a: &a {b: *a}\n", "aliases"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "tiny objects" {
				var b strings.Builder
				for i := 0; b.Len() < MaxSize-100; i++ {
					fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: n%d}}\n", i)
				}
				c.text = b.String()
			}
			if name == "as long as can be" {
				var b strings.Builder
				for i := range maxNodes {
					fmt.Fprintf(&b, "k%d: v\n", i)
				}
				c.text = b.String()
			}
			data := []byte(c.text)
			c.text = ""
			peak := peakOf(func() {
				m := Parse("m.yaml", data)
				var got []string
				for _, p := range m.Problems {
					got = append(got, p.Error())
				}
				if text := strings.Join(got, "\n"); !strings.Contains(text, c.want) || c.want == "" && text != "" {
					t.Errorf("problems %.500q, want %q", text, c.want)
				}
			})
			t.Logf("%d MiB", peak>>20)
			if limit := uint64(600 << 20); peak > limit {
				t.Errorf("it took %d MiB, more than %d", peak>>20, limit>>20)
			}
		})
	}
}

// peakOf returns about how much more of the heap is in use at most while something is done.
func peakOf(do func()) uint64 {
	runtime.GC()
	before := heapInUse()
	done := make(chan struct{})
	peaks := make(chan uint64)
	go func() {
		peak := before
		for {
			peak = max(peak, heapInUse())
			select {
			case <-done:
				peaks <- peak
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	do()
	close(done)
	return <-peaks - before
}

// heapInUse reads only this figure: runtime.ReadMemStats would stop all goroutines.
func heapInUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestSplitDocuments(t *testing.T) {
	text := "%YAML 1.2\n# one\n---\n\n--- a: 1\nb: 2\n...\n\n%TAG ! x\n---\nc: 3\n---x\n---\td\n"
	var got []string
	for d := range splitDocuments([]byte("\uFEFF" + strings.ReplaceAll(text, "\n", "\r\n"))) {
		got = append(got, fmt.Sprintf("%d %q", d.line, d.text))
	}
	want := []string{`5 "    a: 1\nb: 2\n"`, `10 "   \nc: 3\n---x\n"`, `13 "   \td\n"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFilesOfWindows have another end of lines, or a mark before the first, and are refused in an encoding that would
// be taken for an empty file.
func TestFilesOfWindows(t *testing.T) {
	const text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n"
	var little, big strings.Builder
	for _, b := range []byte(text) {
		little.Write([]byte{b, 0})
		big.Write([]byte{0, b})
	}
	for name, c := range map[string]struct {
		text, want string
		objects    int
	}{
		"ends of lines": {strings.ReplaceAll(text, "\n", "\r\n"), "", 2},
		"a mark":        {"\uFEFF" + text, "", 2},
		"little endian": {"\xff\xfe" + little.String(), "m.yaml:1: the file is in UTF-16, as some versions of PowerShell write; save it as UTF-8", 0},
		"big endian":    {"\xfe\xff" + big.String(), "m.yaml:1: the file is in UTF-16, as some versions of PowerShell write; save it as UTF-8", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := Parse("m.yaml", []byte(c.text))
			var got []string
			for _, p := range f.Problems {
				got = append(got, p.Error())
			}
			if strings.Join(got, "\n") != c.want || len(f.Objects) != c.objects {
				t.Errorf("%d objects, %q", len(f.Objects), got)
			}
		})
	}
}
