// Command probe is a pod for trying networks: it answers who it is and who asked, and asks
// others on demand, so that a way from pod to pod can be tried without a shell in the image.
//
//	GET /             {"pod":…,"node":…,"client":…}: its name, its node's, and the address that the request came from
//	GET /fetch?url=   asks that URL from here, and hands on the answer; 502 with the error if there is none within 3 s
//
// It listens on :8080 (PORT). POD_NAME and NODE_NAME come from the Downward API.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// fetchTimeout is how long /fetch waits for an answer.
const fetchTimeout = 3 * time.Second

// answerLimit is how much of an answer /fetch hands on.
const answerLimit = 1 << 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	server := &http.Server{Addr: ":" + cmp.Or(os.Getenv("PORT"), "8080"), Handler: handler(os.Getenv), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(end)
	}()
	err := server.ListenAndServe()
	stop()
	if !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// who is the answer of /.
type who struct {
	Pod    string `json:"pod"`
	Node   string `json:"node"`
	Client string `json:"client"`
}

func handler(getenv func(string) string) http.Handler {
	// No connection outlives its request: each asks the network again.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		address, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			address = r.RemoteAddr
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(who{Pod: getenv("POD_NAME"), Node: getenv("NODE_NAME"), Client: address})
	})
	mux.HandleFunc("GET /fetch", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), fetchTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.FormValue("url"), nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response, err := client.Do(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = response.Body.Close() }()
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, io.LimitReader(response.Body, answerLimit))
	})
	return mux
}
