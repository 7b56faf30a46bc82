// Package page is the web page of the control API. It shows a cloud live and changes it over that API
// and over that of a project. The control API serves both without a token: the page has no other rights and does not know a secret.
// It has no build step and sends no requests to other hosts: what the browser runs is what is in the folder ui.
package page

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed ui
var files embed.FS

var index = template.Must(template.ParseFS(files, "ui/index.html"))

// policy lets the page load nothing from elsewhere, run no script that is written into it, and be in no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// Wanted reports whether a request for / comes from a browser. Other clients get JSON.
func Wanted(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// Shown is what the page tells clients of the API: the endpoint, "" if the API does not listen, and the token, "" for a secret one.
type Shown struct{ Endpoint, Token string }

// Index answers with the page.
func Index(w http.ResponseWriter, shown Shown) {
	var out bytes.Buffer
	if err := index.Execute(&out, shown); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // a bug in the template
		return
	}
	protect(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes()) // the client may be gone
}

// Files serves what the page loads, below /ui/.
func Files() http.Handler {
	ui, err := fs.Sub(files, "ui")
	if err != nil {
		panic(err) // the folder is embedded
	}
	server := http.StripPrefix("/ui/", http.FileServerFS(ui))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		if strings.HasSuffix(r.URL.Path, "/") || strings.HasSuffix(r.URL.Path, ".html") { // no list of files, and no template
			http.NotFound(w, r)
			return
		}
		server.ServeHTTP(w, r)
	})
}

func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // another version of the program may be at this address next time
}
