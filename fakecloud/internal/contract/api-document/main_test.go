package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

func TestADocumentIsWrittenIfItHasTheChecksum(t *testing.T) {
	t.Parallel()
	const good = `{"openapi": "3.1.2"}`
	served, requests := good, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		if served == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(served))
	}))
	defer server.Close()
	folder := t.TempDir()
	path, newer := filepath.Join(folder, "hetzner", "cloud.spec.json"), filepath.Join(folder, "newer.json")
	get := func(newer string) error {
		return download(t.Context(), server.URL, checksum([]byte(good)), path, newer)
	}
	content := func(path string) string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
	for range 2 {
		if err := get(""); err != nil || content(path) != good || requests != 1 {
			t.Fatalf("%v: %q after %d requests", err, content(path), requests)
		}
	}
	served = "{}"
	if err := get(newer); !errors.Is(err, errChanged) || content(newer) != "{}" || content(path) != good {
		t.Errorf("a changed document: %v; newer %q, kept %q", err, content(newer), content(path))
	}
	served = ""
	if err := get(newer); err == nil || errors.Is(err, errChanged) || content(newer) != "{}" {
		t.Errorf("an error of the server: %v; %q", err, content(newer))
	}
}
