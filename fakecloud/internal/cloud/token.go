package cloud

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// Token is an API token. A token belongs to one project.
type Token struct {
	Project  int64 `json:"project"`
	ReadOnly bool  `json:"read_only,omitzero"`
	// APIDate, if not zero, is the day of the API that the token sees. Otherwise it sees the cloud's.
	APIDate time.Time `json:"api_date,omitzero"`
}

// validToken is a token with its project, or a revoked one without.
type validToken struct {
	Token
	project *projectData
}

// tokenTable has the tokens of a cloud, and finds them in texts.
type tokenTable struct {
	sync.Map // *validToken by text

	mu     sync.RWMutex
	starts map[string][]string // the tokens of at least MinSecretToken bytes by their first ones, the longest first
}

// MinSecretToken is the length of a token that is looked for in texts. A shorter one may be there by chance.
const MinSecretToken = 16

// Store adds or replaces a token.
func (t *tokenTable) Store(text string, valid *validToken) {
	if _, known := t.Swap(text, valid); known || len(text) < MinSecretToken {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.starts == nil {
		t.starts = map[string][]string{}
	}
	start := text[:MinSecretToken]
	t.starts[start] = append(t.starts[start], text)
	slices.SortFunc(t.starts[start], func(a, b string) int { return len(b) - len(a) })
}

// Delete removes a token.
func (t *tokenTable) Delete(text string) {
	if _, known := t.LoadAndDelete(text); !known || len(text) < MinSecretToken {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	start := text[:MinSecretToken]
	t.starts[start] = slices.DeleteFunc(t.starts[start], func(other string) bool { return other == text })
	if len(t.starts[start]) == 0 {
		delete(t.starts, start)
	}
}

// WithoutTokens returns a text with a marker instead of each token that is valid, of whatever project. Its cost does not depend on how many
// there are.
func (c *Cloud) WithoutTokens(text string) string {
	c.tokens.mu.RLock()
	defer c.tokens.mu.RUnlock()
	for i := 0; i+MinSecretToken <= len(text); i++ {
		for _, token := range c.tokens.starts[text[i:i+MinSecretToken]] {
			if strings.HasPrefix(text[i:], token) {
				text = strings.ReplaceAll(text, token, "REDACTED")
				break
			}
		}
	}
	return text
}

// maxRevoked is how many revoked tokens a cloud with automatic projects remembers: the latest. An older one is unknown, and may
// become the token of a new project.
const maxRevoked = 10_000

// CheckToken returns an error if a client cannot send the token.
func CheckToken(text string) error {
	if text == "" || len(text) > 256 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("token: must have 1 to 256 ASCII characters without spaces (a real one has 64 letters and digits)")
	}
	return nil
}

// errInvalidToken is ErrUnauthorized for a token that is not valid.
func errInvalidToken() *Error { return ErrUnauthorized("the token you have provided is invalid") }

// AddToken makes a token valid. It replaces a token of the same text. It returns false if the project does not exist.
func (c *Cloud) AddToken(text string, t Token) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.Project(t.Project)
	if ok {
		c.addToken(text, t, p.data)
	}
	return ok
}

func (c *Cloud) addToken(text string, t Token, d *projectData) *validToken {
	if old := c.token(text); old != nil && old.project != nil {
		delete(old.project.tokens, text)
		c.saver.remove(tokenEntry(text, old.Token).entryKey)
	}
	text = strings.Clone(text) // it may be a part of a long header
	valid := &validToken{t, d}
	d.tokens[text] = struct{}{}
	c.tokens.Store(text, valid)
	if c.saver != nil {
		c.saver.put(tokenEntry(text, t))
	}
	return valid
}

// RevokeToken makes a token invalid. It does not become the token of a new project, unless maxRevoked others are revoked later.
func (c *Cloud) RevokeToken(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revokeToken(text)
}

func (c *Cloud) revokeToken(text string) {
	t := c.token(text)
	if t == nil || t.project == nil {
		return
	}
	delete(t.project.tokens, text)
	c.saver.remove(tokenEntry(text, t.Token).entryKey)
	if !c.auto.on {
		c.tokens.Delete(text)
		return
	}
	c.tokens.Store(text, &validToken{})
	c.revoked = append(c.revoked, text)
	if len(c.revoked) <= maxRevoked {
		return
	}
	if t := c.token(c.revoked[0]); t != nil && t.project == nil {
		c.tokens.Delete(c.revoked[0])
	}
	c.revoked = c.revoked[1:]
}

// Token looks up a token.
func (c *Cloud) Token(text string) (Token, bool) {
	t := c.token(text)
	if t == nil || t.project == nil {
		return Token{}, false
	}
	return t.Token, true
}

func (c *Cloud) token(text string) *validToken {
	t, ok := c.tokens.Load(text)
	if !ok {
		return nil
	}
	return t.(*validToken)
}

// Enter returns the token of a request and its project. If Options.AutoProjects is set, it notes that the project is used, and it
// makes a project for an unknown token. Errors: unauthorized; resource_limit_exceeded if there are too many such projects.
func (c *Cloud) Enter(text string) (Token, Project, error) {
	t := c.token(text)
	if t == nil || t.project == nil || !c.use(t.project) {
		var err error
		if t, err = c.enterUnknown(text); err != nil {
			return Token{}, Project{}, err
		}
	}
	return t.Token, Project{cloud: c, data: t.project}, nil
}
