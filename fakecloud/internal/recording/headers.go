package recording

import (
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strings"
)

var product = regexp.MustCompile(`^(hcloud-go|hcloud-python|hcloud-cli|Terraform|curl|packer-plugin-hcloud|csi-driver|` +
	`hcloud-cloud-controller|fakecloud-seed)/[0-9]{1,4}(\.[0-9]{1,4}){0,2}$`)

// requestHeaders returns what of a request's headers passes. Of the token, only which of the recording's it is.
func (r *Redactor) requestHeaders(h http.Header) map[string]string {
	out := map[string]string{}
	if v := h.Get("Authorization"); v != "" {
		scheme, token, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			scheme = "other"
		}
		if token = strings.TrimSpace(token); r.secrets[token] == "" {
			r.secrets[token] = fmt.Sprintf("[token %d]", r.next("token"))
		}
		out["Authorization"] = scheme + " " + r.secrets[token]
	}
	if v := h.Get("Content-Type"); v != "" {
		out["Content-Type"] = mediaType(v)
	}
	products := strings.Fields(h.Get("User-Agent"))
	for i, p := range products {
		if !product.MatchString(p) {
			products[i] = markerString
		}
	}
	if len(products) > 0 {
		out["User-Agent"] = strings.Join(products, " ")
	}
	return out
}

// countedHeaders are headers of an answer that are recorded by their presence only.
var countedHeaders = []string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Retry-After", "X-Correlation-Id", "Location"}

// responseHeaders returns what of an answer's headers passes.
func responseHeaders(h http.Header) map[string]string {
	out := map[string]string{}
	if v := h.Get("Content-Type"); v != "" {
		out["Content-Type"] = mediaType(v)
	}
	for _, name := range countedHeaders {
		if h.Get(name) != "" {
			out[name] = markerString
		}
	}
	if links := h.Values("Link"); len(links) > 0 {
		var rels []string
		for _, m := range relation.FindAllStringSubmatch(strings.Join(links, ", "), -1) {
			rels = append(rels, m[1])
		}
		out["Link"] = strings.Join(rels, ", ")
	}
	return out
}

var relation = regexp.MustCompile(`rel="?(first|prev|next|last)"?`)

func mediaType(v string) string {
	switch kind, _, _ := mime.ParseMediaType(v); kind {
	case "application/json", "application/problem+json", "application/x-www-form-urlencoded", "text/html", "text/plain":
		return kind
	}
	return markerString
}
