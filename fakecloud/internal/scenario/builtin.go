package scenario

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

//go:embed builtin/*.yaml
var builtin embed.FS

// builtins are the built-in scenarios by name.
var builtins = sync.OnceValue(func() map[string]*File {
	all := map[string]*File{}
	entries, err := builtin.ReadDir("builtin")
	for _, e := range entries {
		var text []byte
		var f *File
		if text, err = builtin.ReadFile("builtin/" + e.Name()); err == nil {
			f, err = Parse(e.Name(), text)
		}
		if err == nil && f.Name+".yaml" != e.Name() {
			err = fmt.Errorf("%s: the name is %s", e.Name(), f.Name)
		}
		if err != nil {
			break
		}
		all[f.Name] = f
	}
	if err != nil { // a test would have seen it
		panic("scenario: " + err.Error())
	}
	return all
})

// Builtin returns a built-in scenario. The error is scenario.ErrNotFound if there is none of that name.
func Builtin(name string) (*File, error) {
	f, ok := builtins()[name]
	if !ok {
		return nil, fmt.Errorf("scenario %.64q %w; it must be one of %s, or the path of a file", name, scenario.ErrNotFound,
			strings.Join(slices.Sorted(maps.Keys(builtins())), ", "))
	}
	return f, nil
}

// Builtins returns the built-in scenarios, by name.
func Builtins() []scenario.Available {
	var all []scenario.Available
	for _, name := range slices.Sorted(maps.Keys(builtins())) {
		f := builtins()[name]
		all = append(all, scenario.Available{Name: f.Name, Description: f.Description, Parameters: f.Parameters})
	}
	return all
}
