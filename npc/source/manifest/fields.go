package manifest

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fields are the fields that an object has in its manifest. In its type, a field that is absent may be the same as an
// empty one.
type fields struct{ root any }

// newFields reads the fields of an object, which has been decoded before.
func newFields(data []byte) fields {
	var f fields
	if err := json.Unmarshal(data, &f.root); err != nil {
		return fields{}
	}
	return f
}

// has reports whether the object has a field, other than null, which an API server takes for absent.
func (f fields) has(path *field.Path) bool {
	value := f.root
	for step := range pathSteps(path.String()) {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				return false
			}
			value = v[i]
		default:
			return false
		}
	}
	return value != nil
}
