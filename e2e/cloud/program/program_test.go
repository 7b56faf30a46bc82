package program

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// mode is the variable that makes this test's program a driver that misbehaves.
const mode = "PROGRAM_TEST_MODE"

func TestMain(m *testing.M) {
	if how := os.Getenv(mode); how != "" {
		misbehave(how)
		return
	}
	os.Exit(m.Run())
}

// usual are the results that a driver begins with.
var usual = map[string]string{
	"Describe": `{"protocol": 1, "interfaces": ["Router", "Dumper"]}`,
	"Start":    `{"ccm": {"env": {"A": "b"}}}`,
	"Dump":     `"one VM"`,
	"Close":    `null`,
}

// unusual are the results, or errors, of calls in a mode.
var unusual = map[string]string{
	"other protocol/Describe":   `"result": {"protocol": 2}`,
	"other interface/Describe":  `"result": {"protocol": 1, "interfaces": ["Dialer"]}`,
	"no ccm/Start":              `"result": {}`,
	"wrong type/Servers":        `"result": {"servers": []}`,
	"no result/Servers":         `"result": null`,
	"not found/DeleteServer":    `"error": {"code": "not-found", "message": "who?"}`,
	"unsupported/DeleteServer":  `"error": {"code": "unsupported", "message": "never"}`,
	"failed/DeleteServer":       `"error": {"code": "failed", "message": "no luck"}`,
	"unknown code/DeleteServer": `"error": {"code": "404", "message": "no luck"}`,
}

// misbehave is a driver that does as a mode says.
func misbehave(how string) {
	if how == "dies at once" {
		os.Exit(3)
	}
	lines := bufio.NewScanner(os.Stdin)
	var held []uint64
	for lines.Scan() {
		var q struct {
			ID     uint64
			Method string
		}
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, "cannot read a question:", err)
			os.Exit(4)
		}
		say := func(id uint64, text string) { fmt.Printf("{\"id\": %d, %s}\n", id, text) }
		answer := cmp.Or(unusual[how+"/"+q.Method], `"result": `+cmp.Or(usual[q.Method], "[]"))
		switch how + "/" + q.Method {
		case "dies/Servers":
			fmt.Fprintln(os.Stderr, "I have met a bug")
			os.Exit(3)
		case "garbage/Servers":
			fmt.Println("starting up…")
		case "twice/Servers":
			say(q.ID, answer)
		case "not asked/Servers":
			q.ID = 99
		case "without id/Servers":
			q.ID = 0
		case "silent/Servers":
			continue
		case "closes its output/Servers":
			_ = os.Stdout.Close()
			hang()
		case "last first/CreateServer": // answers three at once, in the opposite order
			if held = append(held, q.ID); len(held) == 3 {
				for i := range held {
					say(held[2-i], fmt.Sprintf(`"result": {"id": "%d"}`, held[2-i]))
				}
			}
			continue
		case "late/Servers":
			held = append(held, q.ID)
			continue
		case "late/LoadBalancers": // answers what was given up, as soon as it was asked
			if len(held) == 0 {
				answer = `"error": {"code": "failed", "message": "too early"}`
				break
			}
			say(held[0], answer)
			held = held[1:]
		case "no end/Close":
			say(q.ID, answer)
			hang()
		}
		say(q.ID, answer)
	}
}

// hang waits until the process is killed.
func hang() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, os.Interrupt)
	<-never
}

// start starts this test's program as a driver that misbehaves.
func start(t *testing.T, how string) (cloud.Cloud, *gbytes.Buffer, error) {
	log := gbytes.NewBuffer()
	d := Driver{Path: os.Args[0], Env: []string{mode + "=" + how}, Grace: time.Minute}
	if how == "no end" || how == "closes its output" {
		d.Grace = time.Second
	}
	c, err := d.Start(t.Context(), cloud.Options{Log: log})
	return c, log, err
}

// started is start for a program that becomes a driver.
func started(t *testing.T, how string) (*WithT, cloud.Cloud, *gbytes.Buffer) {
	t.Helper()
	g := NewWithT(t)
	c, log, err := start(t, how)
	g.Expect(err).NotTo(HaveOccurred())
	return g, c, log
}

func TestAProgramThatCannotBeADriverIsRefused(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"dies at once":    "exit status 3",
		"other protocol":  "version 2 of the protocol",
		"other interface": `implements "Dialer"`,
		"no ccm":          `no "ccm"`,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			_, _, err := start(t, how)
			g.Expect(err).To(MatchError(And(ContainSubstring(want), ContainSubstring(os.Args[0]))))
		})
	}
	_, err := Driver{Path: "/no/such/driver"}.Start(t.Context(), cloud.Options{})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("give its path")))
}

func TestAProgramThatBreaksTheProtocolIsAnError(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"dies":              "Servers: it has ended: exit status 3",
		"garbage":           `is not JSON`,
		"not asked":         "answers 99, which was not asked",
		"without id":        `has no "id"`,
		"wrong type":        "is not what the protocol says",
		"no result":         "without a result",
		"closes its output": "it has closed its standard output, and still runs",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g, c, log := started(t, how)
			_, err := c.Servers(t.Context())
			g.Expect(err).To(MatchError(And(ContainSubstring(want), ContainSubstring("Servers: "))))
			if how == "dies" {
				g.Eventually(log).Should(gbytes.Say("I have met a bug"), "its standard error is the log")
			}
			_ = c.Close() // ends, with or without an error
		})
	}
}

func TestASecondAnswerBreaksTheProtocol(t *testing.T) {
	t.Parallel()
	g, c, _ := started(t, "twice")
	_, _ = c.Servers(t.Context()) // has the first answer, or sees the second one
	g.Eventually(func() error {
		_, err := c.LoadBalancers(t.Context())
		return err
	}, 10*time.Second).Should(MatchError(ContainSubstring("a second time")))
	g.Expect(c.Close()).NotTo(Succeed())
}

func TestACallEndsWithItsContextOrItsTime(t *testing.T) {
	t.Parallel()
	g, c, _ := started(t, "silent")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := c.Servers(ctx)
	g.Expect(err).To(And(MatchError(ContainSubstring("it has not answered")), MatchError(context.DeadlineExceeded)))
	g.Expect(c.LoadBalancers(t.Context())).To(BeEmpty(), "other calls are not affected")
	g.Expect(c.Close()).To(Succeed())
	_, err = c.LoadBalancers(t.Context())
	g.Expect(err).To(HaveOccurred(), "the cloud was closed")

	d := Driver{Path: os.Args[0], Env: []string{mode + "=silent"}, Timeout: 5 * time.Second}
	c, err = d.Start(t.Context(), cloud.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = c.Servers(t.Context())
	g.Expect(err).To(MatchError(context.DeadlineExceeded), "a call without a limit ends, too")
	g.Expect(c.Close()).To(Succeed())
}

func TestALateAnswerIsIgnored(t *testing.T) {
	t.Parallel()
	g, c, _ := started(t, "late")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Servers(ctx)
	g.Expect(err).To(MatchError(context.Canceled))
	g.Eventually(func() error {
		_, err := c.LoadBalancers(t.Context())
		return err
	}, 10*time.Second).Should(Succeed())
	g.Expect(c.DeleteServer(t.Context(), "1")).To(Succeed(), "the late answer was taken for a second one")
	g.Expect(c.Close()).To(Succeed())
}

func TestAnswersMayComeInAnyOrder(t *testing.T) {
	t.Parallel()
	g, c, _ := started(t, "last first")
	ids := make(chan string, 3)
	for range 3 {
		go func() {
			s, err := c.CreateServer(t.Context(), "node")
			if err != nil {
				t.Error(err)
			}
			ids <- s.ID
		}()
	}
	var all []string
	for range 3 {
		all = append(all, <-ids)
	}
	g.Expect(all).To(ConsistOf("3", "4", "5"), "Describe and Start were the first two")
	g.Expect(c.Close()).To(Succeed())
}

func TestErrorsKeepTheirKind(t *testing.T) {
	t.Parallel()
	for how, check := range map[string]func(error) bool{
		"not found": func(err error) bool {
			return errors.Is(err, cloud.ErrNotFound) && strings.Contains(err.Error(), "DeleteServer: who?")
		},
		"unsupported": func(err error) bool { return errors.Is(err, errors.ErrUnsupported) },
		"failed": func(err error) bool {
			return err != nil && !errors.Is(err, cloud.ErrNotFound) && !errors.Is(err, errors.ErrUnsupported) &&
				strings.Contains(err.Error(), "no luck")
		},
		"unknown code": func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "must be one of not-found, unsupported, failed")
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			_, c, _ := started(t, how)
			if err := c.DeleteServer(t.Context(), "1"); !check(err) {
				t.Errorf("got %v", err)
			}
			_ = c.Close()
		})
	}
}

func TestOnlyWhatTheProgramNamesIsImplemented(t *testing.T) {
	t.Parallel()
	g, c, _ := started(t, "usual")
	_, router := cloud.As[cloud.Router](c)
	_, renamer := cloud.As[cloud.Renamer](c)
	_, dialer := cloud.As[cloud.Dialer](c)
	dumper, dumps := cloud.As[cloud.Dumper](c)
	g.Expect([]bool{router, renamer, dialer, dumps}).To(Equal([]bool{true, false, false, true}))
	g.Expect(dumper.Dump(t.Context())).To(Equal("one VM"))
	g.Expect(c.CCM()).To(Equal(cloud.CCM{Env: map[string]string{"A": "b"}}))
	g.Expect(c.Close()).To(Succeed())
	g.Expect(c.Close()).To(Succeed(), "closing it again")
}

func TestAProgramThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	g, c, _ := started(t, "no end")
	g.Expect(c.Close()).To(MatchError(ContainSubstring("it was killed 1s after its standard input was closed")))
}

// TestAProgramThatReadsNothing shows that a pipe that is full does not hold up a caller.
func TestAProgramThatReadsNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	in, out := io.Pipe() // nothing reads it
	answers, end := io.Pipe()
	c := newConn(out, answers, func() error { return errors.New("the end") })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for range 3 {
		g.Expect(c.ask(ctx, "Servers", nil, nil)).To(MatchError(context.DeadlineExceeded))
	}
	_ = in.CloseWithError(io.ErrClosedPipe)
	g.Eventually(func() error { return c.ask(t.Context(), "Servers", nil, nil) }).
		Should(MatchError(ContainSubstring("does not read its standard input")))
	_ = end.Close()
}

func FuzzDecodeReply(f *testing.F) {
	for _, seed := range []string{
		`{"id": 1, "result": {}}`, `{"id": 1}`, `{"id": 0}`, `{"id": -1}`, `{"id": 1, "error": {"code": "not-found", "message": "x"}}`,
		`{"id": 1, "error": {}}`, `{"id": 1, "result": 1, "error": {"code": "failed"}}`, `null`, `[]`, `{"id": 1} {"id": 2}`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := decodeReply(line)
		if err != nil {
			return
		}
		if r.ID == 0 || r.Error == nil && !json.Valid(r.Result) || r.Error != nil && r.err() == nil {
			t.Errorf("%q: %+v", line, r)
		}
		var s []cloud.Server
		if err := decodeResult(r, &s); err == nil && r.Error != nil {
			t.Errorf("%q: an error is a result", line)
		}
		_ = shorten(string(line))
	})
}

// TestTheSessionOfTheManual shows that the session of README.md is one: this end sends its calls, and takes its answers.
func TestTheSessionOfTheManual(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	text, err := os.ReadFile("README.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, session, found := strings.Cut(string(text), "```json\n")
	g.Expect(found).To(BeTrue())
	session, _, _ = strings.Cut(session, "```")
	lines := strings.Split(strings.TrimSpace(session), "\n")
	g.Expect(lines).To(HaveLen(10))

	calls, toCalls := io.Pipe()
	answers, toAnswers := io.Pipe()
	c := &program{name: "manual", conn: newConn(toCalls, answers, func() error { return errors.New("the end") })}
	go func() { // the program: it expects the calls of the manual, and gives the answers
		in := bufio.NewScanner(calls)
		for i := 0; i < len(lines) && in.Scan(); i += 2 {
			if same, err := MatchJSON(lines[i]).Match(in.Text()); !same || err != nil {
				t.Errorf("got the call %s, and the manual has %s", in.Text(), lines[i])
			}
			_, _ = fmt.Fprintln(toAnswers, lines[i+1])
		}
		_ = toAnswers.Close()
	}()
	d := Driver{}
	g.Expect(d.begin(t.Context(), c, "Start", cloud.Options{
		ProviderPrefix: "example://", UserAgent: "example-ccm", Servers: netip.MustParsePrefix("127.72.0.0/16"),
		LoadBalancers: netip.MustParsePrefix("127.73.0.0/16"),
	})).To(Succeed())
	g.Expect(c.Implements("Router")).To(BeTrue())
	g.Expect(c.CCM().Env).To(HaveKeyWithValue("EXAMPLE_TOKEN", "example-token"))
	s, err := c.CreateServer(t.Context(), "node-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.ProviderID).To(Equal("example://north-a/vm-7f3a"))
	g.Expect(s.Local.String()).To(Equal("127.72.0.1"))
	g.Expect(s.Addresses).To(HaveLen(1))
	g.Expect(c.DeleteServer(t.Context(), "vm-0000")).To(MatchError(cloud.ErrNotFound))
	g.Expect(c.call(t.Context(), "Close", struct{}{}, nil)).To(Succeed())
}

// TestTheManualHasAllMethods compares README.md with the calls that cloud.go and program.go make.
func TestTheManualHasAllMethods(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	manual, err := os.ReadFile("README.md")
	g.Expect(err).NotTo(HaveOccurred())
	n := 0
	for _, file := range []string{"cloud.go", "program.go"} {
		code, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		for _, found := range regexp.MustCompile(`"([A-Z][A-Za-z]+)", (?:by|of|struct|map|o\))`).FindAllStringSubmatch(string(code), -1) {
			n++
			g.Expect(string(manual)).To(ContainSubstring("`" + found[1] + "`"))
		}
	}
	g.Expect(n).To(Equal(21), "calls were found")
	for _, name := range interfaces {
		g.Expect(string(manual)).To(ContainSubstring("| `" + name + "` |"))
	}
}
