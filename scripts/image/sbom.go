package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// object is a part of the software bill of materials: SPDX 2.3 as JSON. The bill lists the modules that the linker put into the program,
// with the versions that the program itself names. The image holds nothing else.
type object = map[string]any

const (
	noAssertion = "NOASSERTION"
	documentID  = "SPDXRef-DOCUMENT"
	programID   = "SPDXRef-Program"
)

// sbom returns the bill of materials of the image's program.
func (im *image) sbom() ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(im.program))
	if err != nil {
		return nil, fmt.Errorf("reading what the program is built from: %w", err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(im.program))
	platform := "linux/" + im.arch
	// The program does not know its version if it is of another module of this repository.
	version := im.tag[strings.LastIndex(im.tag, ":")+1:]
	source := "built by " + info.GoVersion + settings(info)
	if from := im.labels["org.opencontainers.image.source"]; from != "" {
		source += fmt.Sprintf(" from %s@%s", from, im.labels["org.opencontainers.image.revision"])
	}
	program := spdxPackage(programID, info.Path, version, "APPLICATION")
	program["licenseDeclared"] = cmp.Or(im.labels["org.opencontainers.image.licenses"], noAssertion)
	program["sourceInfo"], program["checksums"] = source, []object{{"algorithm": "SHA256", "checksumValue": sum}}
	program["externalRefs"] = purl(info.Main.Path, version)
	packages, relationships := []object{program}, []object{relationship(documentID, "DESCRIBES", programID)}
	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range append(modules, info.Deps...) {
		p := modulePackage(m, len(packages))
		packages = append(packages, p)
		relationships = append(relationships, relationship(programID, "DEPENDS_ON", p["SPDXID"]))
	}
	text, err := json.MarshalIndent(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": documentID, "name": im.tag + " " + platform,
		// A namespace must be unique to the document: the digest of the program is in it.
		"documentNamespace": fmt.Sprintf("https://%s/spdx/%s-%s-%s", info.Main.Path, im.name, im.arch, sum),
		"creationInfo":      object{"created": im.created.Format(time.RFC3339), "creators": []string{"Tool: " + toolName}},
		"packages":          packages, "relationships": relationships,
	}, "", " ")
	return append(text, '\n'), err
}

func relationship(element, kind string, related any) object {
	return object{"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}
}

const toolName = "ccm-from-scratch-scripts-image"

// notInID finds what an SPDX identifier must not contain.
var notInID = regexp.MustCompile(`[^a-zA-Z0-9.]+`)

func spdxPackage(id, name, version, purpose string) object {
	p := object{
		"SPDXID": id, "name": name, "downloadLocation": noAssertion, "filesAnalyzed": false, "primaryPackagePurpose": purpose,
		"licenseConcluded": noAssertion, "licenseDeclared": noAssertion, "copyrightText": noAssertion, "externalRefs": purl(name, version),
	}
	if version != "" {
		p["versionInfo"] = version
	}
	return p
}

// modulePackage returns the package of a module, or of its replacement. A folder that replaces a module is part of this repository.
func modulePackage(m *debug.Module, number int) object {
	name, version, sum, comment := m.Path, m.Version, m.Sum, ""
	switch r := m.Replace; {
	case r != nil && (strings.HasPrefix(r.Path, ".") || strings.HasPrefix(r.Path, "/")):
		version, comment = "", "in the same repository as the program"
	case r != nil:
		name, version, sum = r.Path, r.Version, r.Sum
	}
	if sum != "" {
		comment = "go.sum " + sum
	}
	p := spdxPackage(fmt.Sprintf("SPDXRef-Module-%d-%s", number, notInID.ReplaceAllString(name, "-")), name, version, "LIBRARY")
	if comment != "" {
		p["comment"] = comment
	}
	return p
}

// purl returns the reference of a module in vulnerability databases. The path keeps upper case letters, because two modules may differ in
// nothing else.
func purl(path, version string) []object {
	locator := "pkg:golang/" + path
	if version != "" && version != "(devel)" {
		locator += "@" + url.QueryEscape(version) // "+" becomes %2B
	}
	return []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}}
}

// settings returns those settings of the build that decide what is in the program.
func settings(info *debug.BuildInfo) string {
	var text strings.Builder
	for _, s := range info.Settings {
		switch s.Key {
		case "-tags", "-trimpath", "CGO_ENABLED", "GOARCH", "GOOS", "GOAMD64", "GOARM64", "vcs.modified":
			fmt.Fprintf(&text, ", %s=%s", s.Key, s.Value)
		}
	}
	return text.String()
}
