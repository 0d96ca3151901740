package propose

import (
	"fmt"
	"regexp"
	"strings"
)

// taken is the names of policies that there are.
type taken map[string]bool

// mostName is how many characters of a wish a name has, so that names with a number are valid too.
const mostName = 48

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// free returns a name for the policy of a workload that none has, and takes it. Names say what the policies are, so
// that they do not replace one that is not proposed and not known.
func (t taken) free(nickname string) string {
	wish := "proposed-" + strings.Trim(notInNames.ReplaceAllString(strings.ToLower(nickname), "-"), "-")
	wish = strings.Trim(wish[:min(len(wish), mostName)], "-")
	name := wish
	for i := 2; t[name]; i++ {
		name = fmt.Sprintf("%s-%d", wish, i)
	}
	t[name] = true
	return name
}

// nickname returns what the workload is called: the name of one that was recorded, or of a pod of manifests.
func (w *workload) nickname() string {
	text := w.pod
	if len(w.names) > 0 {
		text = w.names[0]
	}
	return text[strings.LastIndex(text, "/")+1:]
}
