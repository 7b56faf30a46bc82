package apicall

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// TokenSource provides the API token. It reads a token file again when the file changes, so that a
// rotated Secret takes effect without a restart.
type TokenSource struct {
	static string
	file   string

	mu      sync.Mutex
	token   string
	modTime time.Time
	size    int64
}

// NewTokenSource returns a source of the token, or of the one in the file.
func NewTokenSource(token, file string) *TokenSource { return &TokenSource{static: token, file: file} }

// Token returns the current token. While the file is unreadable or empty, for example because it is
// being replaced, Token returns the last valid token.
func (s *TokenSource) Token() (string, error) {
	if s.file == "" {
		return s.static, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.file)
	if err == nil && s.token != "" && info.ModTime().Equal(s.modTime) && info.Size() == s.size {
		return s.token, nil
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(s.file)
	}
	token := strings.TrimSpace(string(content))
	if err == nil && token == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		if s.token != "" {
			return s.token, nil
		}
		return "", fmt.Errorf("reading the API token from HCLOUD_TOKEN_FILE=%q: %w", s.file, err)
	}
	s.token, s.modTime, s.size = token, info.ModTime(), info.Size()
	return token, nil
}
