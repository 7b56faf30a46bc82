package api

import (
	"math"
	"strings"
)

// knownPath is a path of the API with its methods.
type knownPath struct {
	pattern  string
	segments []string
	methods  []string
}

func knownPaths(routes []Route) []knownPath {
	var known []knownPath
	at := make(map[string]int)
	for _, route := range routes {
		i, ok := at[route.Pattern]
		if !ok {
			i = len(known)
			at[route.Pattern] = i
			known = append(known, knownPath{pattern: route.Pattern, segments: strings.Split(route.Pattern[1:], "/")})
		}
		known[i].methods = append(known[i].methods, route.Method)
	}
	return known
}

// maxComparedPath is how much of a path is compared, in bytes. Paths of the API are shorter.
const maxComparedPath = 256

// nearest returns the operations of the known path that is most similar to a path, such as "GET /v1/servers". It returns nil if no path is
// similar. It goes from segment to segment, and keeps the known paths with the most similar segment. Missing or repeated base paths, and
// slashes at the end, do not count.
func nearest(known []knownPath, path string) []string {
	path = path[:min(len(path), maxComparedPath)]
	segments := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for len(segments) > 0 && "/"+segments[0] == Prefix {
		segments = segments[1:]
	}
	candidates := known
	for i, segment := range segments {
		next := mostSimilar(candidates, i, segment)
		if len(next) == 0 {
			if i == 0 {
				return nil
			}
			break
		}
		candidates = next
	}
	if len(segments) == 0 {
		return nil
	}
	best := candidates[0]
	for _, c := range candidates {
		if len(c.segments) < len(best.segments) {
			best = c
		}
	}
	operations := make([]string, len(best.methods))
	for i, method := range best.methods {
		operations[i] = method + " " + Prefix + best.pattern
	}
	return operations
}

// mostSimilar returns the paths with a segment i that is similar to the given one, and most similar among all.
func mostSimilar(paths []knownPath, i int, segment string) []knownPath {
	var most []knownPath
	least := math.MaxInt
	last, lastDifference := "", math.MaxInt // several paths in a row have the same segment
	for _, p := range paths {
		if i >= len(p.segments) {
			continue
		}
		if p.segments[i] != last {
			last, lastDifference = p.segments[i], difference(p.segments[i], segment)
		}
		if lastDifference < least {
			least, most = lastDifference, nil
		}
		if lastDifference == least && least < math.MaxInt {
			most = append(most, p)
		}
	}
	return most
}

// difference returns how different a segment is from a known one, or math.MaxInt if it is not similar. A parameter takes
// each id, and, if nothing is more similar, each text.
func difference(known, segment string) int {
	const anyText = 3
	switch {
	case known == segment:
		return 0
	case strings.HasPrefix(known, "{"):
		if strings.Trim(segment, "0123456789") == "" {
			return 0
		}
		return anyText
	}
	most := len(known)/3 + 1
	if len(segment) < len(known)-most || len(segment) > len(known)+most {
		return math.MaxInt
	}
	if d := editDistance(known, segment); d <= most {
		return d
	}
	return math.MaxInt
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
