package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// result is what a pod has found out about its piece: files by name, and whether they tell of a failure. The pod prints it at the end of
// its log: lines with the mark. A pod that was killed before has no last line, and thus no result.
type result struct {
	Failed bool
	Files  map[string][]byte
}

const (
	partMark = "onkubernetes: part "
	endMark  = "onkubernetes: end "
	// partLength is below the length at which a container's runtime divides lines.
	partLength = 6000
)

func (r result) print(w io.Writer) error {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := errors.Join(gob.NewEncoder(zip).Encode(r), zip.Close()); err != nil {
		return err
	}
	text := base64.StdEncoding.EncodeToString(packed.Bytes())
	out := bufio.NewWriter(w)
	for at := 0; at < len(text); at += partLength {
		fmt.Fprintf(out, "%s%s\n", partMark, text[at:min(len(text), at+partLength)])
	}
	fmt.Fprintf(out, "%s%s\n", endMark, digest(text))
	return out.Flush()
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// readResult reads a pod's log.
func readResult(log io.Reader) (r result, err error) {
	var text strings.Builder
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		if part, ok := strings.CutPrefix(line, partMark); ok {
			text.WriteString(part)
		}
		if sum, ok := strings.CutPrefix(line, endMark); ok {
			if sum != digest(text.String()) {
				return r, errors.New("its log lacks a part of the result")
			}
			break
		}
		if errors.Is(err, io.EOF) {
			return r, errors.New("its log has no result")
		}
		if err != nil {
			return r, err
		}
	}
	zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text.String())))
	if err == nil {
		err = gob.NewDecoder(zip).Decode(&r)
	}
	return r, err
}
