package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestRunSaysWhereItIsAndEndsWithItsInput(t *testing.T) {
	t.Parallel()
	in, closeIn := io.Pipe()
	out, toOut := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(context.Background(), []string{"--until-stdin-closes", "--token=secret"}, in, toOut, io.Discard)
	}()
	var where struct{ Endpoint, Control, Token string }
	if err := json.NewDecoder(out).Decode(&where); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{where.Endpoint + "/instances": 200, where.Control + "/faults": 200, where.Control + "/no": 404} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+where.Token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want || where.Token != "secret" {
			t.Errorf("%s: %d, want %d; the token is %q", url, answer.StatusCode, want, where.Token)
		}
	}
	_ = closeIn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"extra":                              `"extra": is not a flag`,
		"--instances=10.0.0.0/24":            "are not of this host",
		"--instances=127.41.1.0/24":          "overlap",
		"--listen=no-such-host.invalid:1":    "choose another --listen",
		"--load-balancers=127.0.0.0/8000000": "invalid value",
	} {
		err := run(t.Context(), []string{args}, strings.NewReader(""), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
