package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

func get(t *testing.T, target string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestItSaysWhoItIsAndWhoAsked(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(handler(func(name string) string { return "the " + name }))
	t.Cleanup(server.Close)
	for _, ask := range []string{server.URL, server.URL + "/fetch?url=" + url.QueryEscape(server.URL)} {
		status, body := get(t, ask)
		var got who
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s", ask, status, body)
		}
		if want := (who{Pod: "the POD_NAME", Node: "the NODE_NAME", Client: "127.0.0.1"}); got != want {
			t.Errorf("%s: %+v, want %+v", ask, got, want)
		}
	}
}

func TestWhatCannotBeReachedIsABadGateway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(handler(func(string) string { return "" }))
	t.Cleanup(server.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for target, want := range map[string]int{gone.URL: http.StatusBadGateway, "%zz": http.StatusBadRequest, server.URL + "/nothing": http.StatusNotFound} {
		if status, body := get(t, server.URL+"/fetch?url="+url.QueryEscape(target)); status != want {
			t.Errorf("%s: %d %s, want %d", target, status, body, want)
		}
	}
}
