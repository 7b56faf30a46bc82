package guests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/testhook"
)

func testDisk() *disk {
	return newSystem(func() time.Time { return time.Time{} }, nil, hypervisor.Guest{Name: "a"}, nil)
}

func FuzzRules(f *testing.F) {
	f.Add("- match: a\n  delay: 1s\n  exit_code: 3\n")
	f.Add("- {match: '(', server: '*'}")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseRules([]byte(text))
		if err == nil {
			answer(rules, "a", text)
		} else if strings.TrimSpace(err.Error()) == "" {
			t.Error("an error without words")
		}
	})
}

// FuzzSCP sends anything to both sides of scp. What comes out of them fits the disk.
func FuzzSCP(f *testing.F) {
	f.Add("C0644 5 a\nhello\x00")
	f.Add("T1 0 1 0\nC0755 0 b\n\x00C0644 99999999999 c\n")
	f.Add("C0644 -1 ../x\n\x01\x02E\n")
	f.Add("\x00\x00\x00\x01no\n")
	f.Fuzz(func(t *testing.T, text string) {
		d := testDisk()
		for _, do := range []func(*copier) error{
			func(c *copier) error { return c.receive("/tmp", false) },
			func(c *copier) error { return c.receive("x", false) },
			func(c *copier) error { return c.send("/etc/hostname") },
		} {
			_ = do(&copier{d, bufio.NewReader(strings.NewReader(text)), io.Discard})
		}
		size := 0
		for _, file := range d.files {
			size += len(file.data)
		}
		if size != d.size || size > maxDisk {
			t.Errorf("the disk has %d bytes, and counts %d", size, d.size)
		}
	})
}

// FuzzShell runs anything. Each command that is parsed makes the text shorter.
func FuzzShell(f *testing.F) {
	for _, text := range []string{"a 'b c' \"$D\" && e || f; g # h\ni", "\\", "'", "a=b c", "${", "$(", "x |"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for rest := text; rest != ""; {
			c, after, err := parse(rest, map[string]string{"D": "d"})
			if err != nil {
				break
			}
			if len(after) >= len(rest) || !strings.Contains(rest, c.text) {
				t.Fatalf("%q: %+v, and %q is left", rest, c, after)
			}
			rest = after
		}
	})
}

func TestWrongRulesAreExplained(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"- match: a\n  exit: 3":                    "rules: yaml: unmarshal errors:\n  line 2: field exit not found in type guests.Rule",
		"- output: a":                              "rule 1: match is missing; write a regular expression for the command",
		"- match: a\n- match: (":                   "rule 2: error parsing regexp: missing closing ): `(`; see https://pkg.go.dev/",
		"- match: a\n  exit_code: 256":             "rule 1: exit_code 256: must be 0 to 255",
		"- match: a\n  delay: 2h":                  "rule 1: delay 2h0m0s: must be 0 to 1h0m0s",
		strings.Repeat("- match: a\n", maxRules+1): "rules: 1001 are more than 1000; remove some",
		strings.Repeat("#", maxRulesText+1):        "rules: 1048577 bytes are more than 1048576; shorten them",
		"- match: a\n  delay: soon":                `rules: duration "soon": must be a number with a unit`,
	} {
		if _, err := ParseRules([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	if rules, err := ParseRules(nil); err != nil || rules != nil {
		t.Errorf("an empty file: %v %v", rules, err)
	}
}

// TestADiskHasLimits fills disks, and frees them.
func TestADiskHasLimits(t *testing.T) {
	t.Parallel()
	d := testDisk()
	f, err := d.open("/tmp/a", true, true)
	if err != nil {
		t.Fatal(err)
	}
	for off, want := range map[int64]error{maxDisk: syscall.ENOSPC, -1: syscall.ENOSPC, 1 << 62: syscall.ENOSPC, maxDisk / 2: nil} {
		if _, err := f.WriteAt([]byte("x"), off); !errors.Is(err, want) {
			t.Errorf("at %d: %v, want %v", off, err, want)
		}
	}
	other, _ := d.open("/tmp/b", true, true)
	if _, err := other.WriteAt([]byte("x"), maxDisk/2); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("two files of half a disk: %v", err)
	}
	err = errors.Join(d.remove("/tmp/a"), d.mkdir("dir", 0o700), d.rename("/tmp/b", "/root/dir/c"), d.rename("dir", "/tmp/e"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a removed file is written to: %v", err)
	}
	if _, err := other.WriteAt([]byte("x"), maxDisk/2); err != nil {
		t.Errorf("after the removal: %v", err)
	}
	if i, err := d.stat("/tmp/e/c"); err != nil || i.Name() != "c" || i.Size() != maxDisk/2+1 {
		t.Errorf("%v %v", i, err)
	}
	for name, err := range map[string]error{
		"below a file": d.mkdir("/etc/hostname/x", 0), "below itself": d.rename("/tmp", "/tmp/x"), "the root": d.remove("/"),
		"over a full directory": d.rename("/etc", "/tmp"), "twice": d.mkdir("/tmp", 0), "missing": d.chmod("/none", 0),
		"no directory": d.rename("/etc/hostname", "/none/x"), "the root to": d.rename("/", "/x"),
		"long": d.mkdir("/"+strings.Repeat("x", maxPath), 0),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for i := range maxFiles {
		_, err = d.open(fmt.Sprint("/tmp/", i), true, false)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d files: %v", len(d.files), err)
	}
}

// TestAScriptHasLimits has scripts that run themselves, and a session that gets too many commands.
func TestAScriptHasLimits(t *testing.T) {
	t.Parallel()
	c, _, err := parse("echo "+strings.Repeat("$A", 100_000), map[string]string{"A": strings.Repeat("x", maxValue)})
	if err != nil || len(c.words) != 2 || len(c.words[1]) != maxText {
		t.Errorf("%v, %d words", err, len(c.words))
	}
	var out bytes.Buffer
	p := &process{ctx: t.Context(), door: &Door{changed: make(chan struct{})}, run: &run{disk: testDisk()}, guest: &guest{},
		env: map[string]string{}, out: &out, err: &out}
	f, _ := p.run.disk.open("/tmp/x", true, true)
	_, _ = f.WriteAt([]byte("#!/bin/sh -e\n"+strings.Repeat("/tmp/x || true\n", 10)), 0)
	_ = p.run.disk.chmod("/tmp/x", 0o755)
	p.door.core = testCore(t)
	if p.list("/tmp/x"); p.commands < maxCommands || !strings.Contains(out.String(), "at most 8 scripts of") ||
		!strings.Contains(out.String(), "a session has at most 100000 commands") {
		t.Errorf("%d commands: %.300s", p.commands, out.String())
	}
}

func testCore(t *testing.T) *cloud.Cloud {
	t.Helper()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	return testhook.Core(c)
}

func TestAWrongHeaderOfSCPIsRefused(t *testing.T) {
	t.Parallel()
	for line, ok := range map[string]bool{"C0644 5 a b\n": true, "C0644 5 a/b\n": false, "C0644 5 ..\n": false, "C0644 5 \n": false,
		"C0644 -1 a\n": false, "D0755 0 a\n": false, "C0999 5 a\n": false, "C0644\n": false} {
		if h, err := parseHeader(line); (err == nil) != ok {
			t.Errorf("%q: %+v, %v", line, h, err)
		}
	}
}

// TestGuestsListenOnLoopbackUnlessTheyArePublic asks for a socket at each address of this machine.
func TestGuestsListenOnLoopbackUnlessTheyArePublic(t *testing.T) {
	t.Parallel()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		own := netip.MustParsePrefix(a.String()).Addr()
		free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(own.String(), "22"))
		if err == nil {
			_ = free.Close()
		}
		for _, public := range []bool{false, true} {
			want := netip.MustParseAddr(loopback)
			if err == nil && (public || own.IsLoopback()) {
				want = own
			}
			l, err := (&Door{o: Options{Public: public}}).socket(own, "0")
			if err != nil {
				t.Fatal(err)
			}
			if got := netip.MustParseAddrPort(l.Addr().String()).Addr(); got != want {
				t.Errorf("public %v: a guest with the address %s listens at %s, want %s", public, own, got, want)
			}
			_ = l.Close()
		}
	}
}
