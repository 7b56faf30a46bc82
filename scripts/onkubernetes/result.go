package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// result is the outcome of a piece: files by name, and whether they tell of a failure. The pod prints it at the end of its log, in lines
// with the mark. A log that lacks one of them has no result.
type result struct {
	Failed bool
	Files  map[string][]byte
}

const (
	mark = "onkubernetes: "
	// partLength is below the length at which a container's runtime divides lines.
	partLength = 6000
)

func (r result) print(w io.Writer) error {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	err := errors.Join(json.NewEncoder(zip).Encode(r), zip.Close())
	text := base64.StdEncoding.EncodeToString(packed.Bytes())
	for ; err == nil && text != ""; text = text[min(len(text), partLength):] {
		_, err = fmt.Fprintln(w, mark+text[:min(len(text), partLength)])
	}
	return err
}

// readResult reads a pod's log. The checksum of gzip shows that the result is whole.
func readResult(log io.Reader) (r result, err error) {
	var text strings.Builder
	lines := bufio.NewReader(log)
	for err == nil {
		var line string
		line, err = lines.ReadString('\n')
		if part, ok := strings.CutPrefix(line, mark); ok {
			text.WriteString(part)
		}
	}
	if !errors.Is(err, io.EOF) {
		return r, err
	}
	zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text.String())))
	if err == nil {
		var whole []byte
		if whole, err = io.ReadAll(zip); err == nil {
			err = json.Unmarshal(whole, &r)
		}
	}
	if err != nil {
		return result{}, fmt.Errorf("its log has no whole result: %w", err)
	}
	return r, nil
}
