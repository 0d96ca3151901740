package output

import "testing"

// TestEscaped are texts whose characters all read as they are in Markdown and HTML.
func TestEscaped(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"markdown", "a|b_c#1", "a&#124;b&#95;c&#35;1"},
		{"html", "<b> & 1", "&lt;b&gt; &amp; 1"},
		{"quotes", `rule 2 'apis', "dns"`, "rule 2 &#39;apis&#39;, &#34;dns&#34;"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Escaped(c.text); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
