package cloudinit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
)

// isMessage reports whether a text begins as a MIME message does.
func isMessage(body string) bool {
	lower := strings.ToLower(body)
	return strings.HasPrefix(lower, "content-type:") || strings.HasPrefix(lower, "mime-version:")
}

// addMessage adds the parts of a MIME message.
func (p *plan) addMessage(body string, i Instance) error {
	m, err := mail.ReadMessage(strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("MIME message: %w", err)
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("MIME message: content type: %w", err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return p.addPart(kind, m.Header.Get("Content-Transfer-Encoding"), m.Body, i)
	}
	parts := multipart.NewReader(m.Body, params["boundary"])
	for n := 1; ; n++ {
		next, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			kind := "text/plain"
			if text := next.Header.Get("Content-Type"); text != "" {
				kind, _, err = mime.ParseMediaType(text)
			}
			if err == nil {
				err = p.addPart(kind, next.Header.Get("Content-Transfer-Encoding"), next, i)
			}
		}
		if err != nil {
			return fmt.Errorf("MIME message: part %d: %w", n, err)
		}
	}
}

func (p *plan) addPart(kind, encoding string, body io.Reader, i Instance) error {
	switch strings.ToLower(encoding) {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if kind == "text/plain" || kind == "text/jinja2" {
		kind = "" // the first line says it
	}
	return p.add(part{kind, string(b)}, i)
}
