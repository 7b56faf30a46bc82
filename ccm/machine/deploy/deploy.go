// Package deploy embeds the manifest of the machine controller and its CRDs. `make generate` writes the CRDs.
package deploy

import (
	"embed"
	"slices"
)

// Manifest is the text of machine-controller.yaml.
//
//go:embed machine-controller.yaml
var Manifest []byte

//go:embed crds
var crds embed.FS

// CRDs returns the text of all CustomResourceDefinitions.
func CRDs() []byte {
	entries, err := crds.ReadDir("crds")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	var all [][]byte
	for _, e := range entries {
		text, err := crds.ReadFile("crds/" + e.Name())
		if err != nil {
			panic(err)
		}
		all = append(all, text)
	}
	return slices.Concat(all...)
}
