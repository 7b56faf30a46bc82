// Command api-document downloads Hetzner's API document into the user's cache, where the contract tests find it. The document is
// not part of this repository: only its checksum is.
//
//	go run ./internal/contract/api-document
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
)

// errChanged means that the public document is no longer the one that the tests know.
var errChanged = errors.New("has changed")

func main() {
	address := flag.String("url", "https://docs.hetzner.cloud/cloud.spec.json", "the document's `address`")
	sum := flag.String("sha256", "9ca6b542a057b002804b9f4f45ccfdb8b9a28c92b7e5bf5ae1b7f46b54fe0093", "its `checksum`")
	newer := flag.String("newer", "", "also write a document with another checksum, to this `file`")
	flag.Parse()
	path, err := contract.CachePath()
	if err == nil {
		err = download(context.Background(), *address, *sum, path, *newer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "api-document:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// download gets a document into a file, unless the file has the checksum already. A document with another checksum is the
// error errChanged; it is written to newer, unless that is empty.
func download(ctx context.Context, address, sum, path, newer string) error {
	if have, err := os.ReadFile(path); err == nil && checksum(have) == sum && newer == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", address, resp.Status)
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("GET %s: %w", address, err)
	}
	if got := checksum(content); got != sum {
		if newer != "" {
			err = write(newer, content)
		}
		return errors.Join(fmt.Errorf("%s %w: its checksum is %s, must be %s: compare the two documents, amend the tests, and change the "+
			"checksum",
			address, errChanged, got, sum), err)
	}
	return write(path, content)
}

func checksum(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// write writes a file as a whole: a reader never sees a part of it.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
