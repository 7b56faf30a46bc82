package api

import (
	"math"
	"strings"
)

// knownPath is a path of the API with its methods.
type knownPath struct {
	pattern string
	methods []string
}

func knownPaths(routes []Route) []knownPath {
	var known []knownPath
	at := make(map[string]int)
	for _, route := range routes {
		i, ok := at[route.Pattern]
		if !ok {
			i = len(known)
			at[route.Pattern] = i
			known = append(known, knownPath{pattern: route.Pattern})
		}
		known[i].methods = append(known[i].methods, route.Method)
	}
	return known
}

// maxComparedPath is how much of a path is compared, in bytes. Paths of the API are shorter.
const maxComparedPath = 256

// nearest returns the operations of the known path that is most similar to a path, such as "GET /v1/servers". It returns nil if no path is
// similar. Missing or repeated base paths, and slashes at the end, do not count. A number is an id.
func nearest(known []knownPath, path string) (operations []string) {
	text := ""
	for segment := range strings.FieldsFuncSeq(path[:min(len(path), maxComparedPath)], func(r rune) bool { return r == '/' }) {
		switch {
		case text == "" && "/"+segment == Prefix:
		case strings.Trim(segment, "0123456789") == "":
			text += "/{id}"
		default:
			text += "/" + segment
		}
	}
	least := math.MaxInt
	for _, k := range known {
		most := len(k.pattern)/3 + 1
		if len(text) < len(k.pattern)-most || len(text) > len(k.pattern)+most {
			continue
		}
		if d := editDistance(k.pattern, text); d <= most && d < least {
			least, operations = d, nil
			for _, method := range k.methods {
				operations = append(operations, method+" "+Prefix+k.pattern)
			}
		}
	}
	return operations
}

// editDistance returns how many bytes have to be inserted, removed or replaced.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := corner
			if a[i] != b[j] {
				replaced++
			}
			corner = row[j+1]
			row[j+1] = min(replaced, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
