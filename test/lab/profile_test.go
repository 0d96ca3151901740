package lab

import (
	"slices"
	"strings"
	"testing"
)

func TestProfileForbidsWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	w, err := New(Config{Nodes: 1, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, c := range []struct {
		command      string
		capabilities []string
		fails        string // empty if the command is allowed
	}{
		{"true", nil, ""},
		{"ip link add bridge0 type bridge", nil, ""},
		{"setarch linux32 true", nil, ""},
		{"setarch --addr-no-randomize true", nil, "setarch: failed"}, // personality, which is allowed with some values only
		{"chroot / true", nil, "Operation not permitted"},
		{"chroot / true", []string{"CAP_SYS_CHROOT"}, ""},
	} {
		wrap, err := ProfileWrap(DefaultProfile, c.capabilities...)
		if err != nil {
			t.Fatal(err)
		}
		line := slices.Concat(wrap, strings.Fields(c.command))
		out, err := w.Outside().Command(t.Context(), line[0], line[1:]...).CombinedOutput()
		if (err == nil) != (c.fails == "") || !strings.Contains(string(out), c.fails) {
			t.Errorf("%s with %v: %v, %s; it has to say %q", c.command, c.capabilities, err, out, c.fails)
		}
	}
}
