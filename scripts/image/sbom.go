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

// The software bill of materials: SPDX 2.3 as JSON. It lists the modules that the linker put into the program,
// with the versions that the program itself names. The image holds nothing else.
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	Name             string         `json:"name"`
	ID               string         `json:"SPDXID"`
	Version          string         `json:"versionInfo,omitempty"`
	DownloadLocation string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	Purpose          string         `json:"primaryPackagePurpose,omitempty"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	Copyright        string         `json:"copyrightText"`
	SourceInfo       string         `json:"sourceInfo,omitempty"`
	Comment          string         `json:"comment,omitempty"`
	Checksums        []spdxChecksum `json:"checksums,omitempty"`
	References       []spdxRef      `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

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
	d := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: documentID, Name: im.tag + " " + platform,
		// A namespace must be unique to the document: the digest of the program is in it.
		Namespace: fmt.Sprintf("https://%s/spdx/%s-%s-%s", info.Main.Path, im.name, im.arch, sum),
		Creation:  spdxCreation{im.created.Format(time.RFC3339), []string{"Tool: " + toolName}},
		Packages: []spdxPackage{{
			Name: info.Path, ID: programID, Version: version, DownloadLocation: noAssertion, Purpose: "APPLICATION",
			LicenseConcluded: noAssertion, LicenseDeclared: cmp.Or(im.labels["org.opencontainers.image.licenses"], noAssertion),
			Copyright: noAssertion, SourceInfo: source, Checksums: []spdxChecksum{{"SHA256", sum}},
			References: purl(info.Main.Path, version),
		}},
		Relationships: []spdxRelationship{{documentID, "DESCRIBES", programID}},
	}
	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range append(modules, info.Deps...) {
		p := modulePackage(m)
		p.ID = fmt.Sprintf("SPDXRef-Module-%d-%s", len(d.Packages), notInID.ReplaceAllString(p.Name, "-"))
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, spdxRelationship{programID, "DEPENDS_ON", p.ID})
	}
	text, err := json.MarshalIndent(d, "", " ")
	return append(text, '\n'), err
}

const toolName = "ccm-from-scratch-scripts-image"

// notInID finds what an SPDX identifier must not contain.
var notInID = regexp.MustCompile(`[^a-zA-Z0-9.]+`)

// modulePackage returns the package of a module, or of the module that replaces it. A folder that replaces a module is part of
// this repository.
func modulePackage(m *debug.Module) spdxPackage {
	p := spdxPackage{
		Name: m.Path, Version: m.Version, DownloadLocation: noAssertion, Purpose: "LIBRARY",
		LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, Copyright: noAssertion,
	}
	sum := m.Sum
	switch r := m.Replace; {
	case r != nil && (strings.HasPrefix(r.Path, ".") || strings.HasPrefix(r.Path, "/")):
		p.Version, p.Comment = "", "in the same repository as the program"
	case r != nil:
		p.Name, p.Version, sum = r.Path, r.Version, r.Sum
	}
	if sum != "" {
		p.Comment = "go.sum " + sum
	}
	p.References = purl(p.Name, p.Version)
	return p
}

// purl returns the reference by which vulnerability databases know a module. The path keeps upper case letters,
// because two modules may differ in nothing else.
func purl(path, version string) []spdxRef {
	locator := "pkg:golang/" + path
	if version != "" && version != "(devel)" {
		locator += "@" + url.QueryEscape(version) // "+" becomes %2B
	}
	return []spdxRef{{"PACKAGE-MANAGER", "purl", locator}}
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
