package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// command is one entry of runcmd or bootcmd, as a line for sh.
type command struct{ text string }

// UnmarshalJSON reads a text for sh, or a list of words.
func (c *command) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if json.Unmarshal(b, &c.text) == nil {
		return nil
	}
	var words []any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // 10, not 1e+01
	if err := d.Decode(&words); err != nil {
		return fmt.Errorf("a command must be a text or a list of words, not %.60s", b)
	}
	quoted := make([]string, 0, len(words))
	for _, w := range words {
		switch w.(type) {
		case string, json.Number, bool:
			quoted = append(quoted, quote(fmt.Sprint(w)))
		case nil:
		default:
			return fmt.Errorf("a word of a command must be a text, not %.60s", b)
		}
	}
	c.text = strings.Join(quoted, " ")
	return nil
}

// file is one entry of write_files.
type file struct {
	Path        string          `json:"path"`
	Content     string          `json:"content"`
	Encoding    string          `json:"encoding"`
	Owner       string          `json:"owner"`
	Permissions json.RawMessage `json:"permissions"`
	Append      bool            `json:"append"`
	// Defer puts it off until packages and users are there. Here they always are.
	Defer bool `json:"defer"`

	mode  string
	bytes []byte
}

// check parses the fields that need it.
func (f *file) check() error {
	if !strings.HasPrefix(f.Path, "/") {
		return fmt.Errorf("path %.60q: must be absolute", f.Path)
	}
	var err error
	if f.mode, err = mode(f.Permissions); err != nil {
		return err
	}
	f.bytes, err = decode(f.Encoding, f.Content)
	return err
}

// mode reads permissions: a text in octal, or a number that YAML parsed as octal.
func mode(permissions json.RawMessage) (string, error) {
	if len(permissions) == 0 || string(permissions) == "null" {
		return "644", nil
	}
	var text string
	var bits uint64
	var err error
	if json.Unmarshal(permissions, &text) == nil {
		bits, err = strconv.ParseUint(strings.TrimPrefix(text, "0o"), 8, 12)
	} else {
		err = json.Unmarshal(permissions, &bits)
	}
	if err != nil || bits > 0o7777 {
		return "", fmt.Errorf("permissions %.60s: must be an octal number such as '0644'", permissions)
	}
	return strconv.FormatUint(bits, 8), nil
}

func decode(encoding, content string) ([]byte, error) {
	var zipped bool
	switch strings.ToLower(encoding) {
	case "", "text/plain":
		return []byte(content), nil
	case "b64", "base64":
	case "gz+b64", "gz+base64", "gzip+b64", "gzip+base64":
		zipped = true
	default:
		return nil, fmt.Errorf("encoding %.60q: must be one of b64, gz+b64, text/plain", encoding)
	}
	// Lines may be broken and indented.
	out, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(content), ""))
	if err != nil || !zipped {
		return out, err
	}
	r, err := gzip.NewReader(bytes.NewReader(out))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxFile))
}

// maxFile bounds the uncompressed size of a file.
const maxFile = 16 << 20

// write writes the file's part of the script.
func (f *file) write(line func(string, ...any)) {
	do := "put"
	if f.Append {
		do = "add"
	}
	path := quote(f.Path)
	text := fmt.Sprintf("%s %s %s %s", do, path, f.mode, encode(f.bytes))
	if f.Owner != "" && f.Owner != "root:root" && f.Owner != "root" {
		text += fmt.Sprintf(" && chown %s %s", quote(f.Owner), path)
	}
	line("%s || fail %s", text, quote("write_files "+f.Path))
}

// ignoredKeys are settings that hold on every node anyway.
var ignoredKeys = []string{"hostname", "fqdn", "preserve_hostname", "prefer_fqdn_over_hostname", "manage_etc_hosts"}

func (p *plan) addConfig(body string) error {
	var all map[string]json.RawMessage
	if err := yaml.Unmarshal([]byte(body), &all); err != nil {
		return fmt.Errorf("%s: %w", configHeader, err)
	}
	var config struct {
		Bootcmd    []command `json:"bootcmd"`
		WriteFiles []file    `json:"write_files"`
		Runcmd     []command `json:"runcmd"`
	}
	known := map[string]any{"bootcmd": &config.Bootcmd, "write_files": &config.WriteFiles, "runcmd": &config.Runcmd}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		to, ok := known[key]
		switch {
		case ok:
			if err := json.Unmarshal(all[key], to); err != nil {
				return fmt.Errorf("%s: %s: %w", configHeader, key, err)
			}
		case !slices.Contains(ignoredKeys, key):
			p.notes = append(p.notes, fmt.Sprintf("the module %.60q is left out", key))
		}
	}
	for i := range config.WriteFiles {
		if err := config.WriteFiles[i].check(); err != nil {
			return fmt.Errorf("%s: write_files.%d: %w", configHeader, i, err)
		}
	}
	p.bootcmd = append(p.bootcmd, config.Bootcmd...)
	p.files = append(p.files, config.WriteFiles...)
	p.runcmd = append(p.runcmd, config.Runcmd...)
	return nil
}
