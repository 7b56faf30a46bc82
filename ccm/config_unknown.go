package ccm

import (
	"fmt"
	"slices"
	"strings"
)

// UnknownVariables returns a sentence about each variable that starts with HCLOUD_ and that the provider does not read. environ has
// the format of os.Environ. The sentence names the nearest known variable, but no values.
func UnknownVariables(environ []string) []string {
	known := knownVariables()
	var sentences []string
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "HCLOUD_") || slices.Contains(known, name) {
			continue
		}
		text := name + " is set, but it is not a setting of " + ProviderName + " and has no effect"
		if near := nearest(name, known); near != "" {
			text += fmt.Sprintf(": did you mean %s?", near)
		}
		sentences = append(sentences, text)
	}
	return sentences
}

// knownVariables returns the names of all variables that ConfigFromEnv reads.
func knownVariables() []string {
	var names []string
	_, _ = ConfigFromEnv(func(name string) (string, bool) { // the missing token does not matter here
		names = append(names, name)
		return "", false
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// nearest returns the name with the smallest edit distance to name, or "" if none is similar.
func nearest(name string, known []string) string {
	best, least := "", len(name)/3
	for _, k := range known {
		if d := editDistance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// editDistance returns the number of characters to insert, delete or replace that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
