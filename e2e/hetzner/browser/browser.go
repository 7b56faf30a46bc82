// Package browser opens the project's pages in a real browser without a screen. Tests see the visible text, the console's errors, the
// targets of requests, and the text for a screen reader.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// programs are the names of browsers that are looked for, after the variable BROWSER.
var programs = []string{"chromium-headless-shell", "headless-shell", "chromium", "chromium-browser", "google-chrome"}

// Find returns the path of a browser, or an error that says how to get one.
func Find() (string, error) {
	for _, name := range append([]string{os.Getenv("BROWSER")}, programs...) {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path, nil
		}
	}
	return "", errors.New("no browser is found; install Chromium (scripts/browser.sh does it on Debian), or set BROWSER to its path")
}

// Page is an open page. A method ends the test if the page does not reach the awaited state within half a minute.
type Page struct {
	testing.TB
	context context.Context
	folder  string

	mu       sync.Mutex
	problems []string            // errors of the console
	hosts    map[string]struct{} // that the page has sent requests to
}

// patience is how long a page may take for one step, in the machine's time.
const patience = 30 * time.Second

// Open opens an empty page of 1280 × 900 pixels. Screenshots go to the folder. Without a browser, the test is skipped, unless the variable
// REQUIRE_BROWSER is set.
func Open(t testing.TB, folder string) *Page {
	t.Helper()
	program, err := Find()
	if err != nil {
		if os.Getenv("REQUIRE_BROWSER") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program),
		chromedp.NoSandbox, // the pages are our own, and in a container as root there is no sandbox
		chromedp.WindowSize(1280, 900))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closePage := chromedp.NewContext(allocator)
	p := &Page{TB: t, context: ctx, folder: folder, hosts: map[string]struct{}{}}
	t.Cleanup(func() { closePage(); stop() })
	Do(p, "start the browser", func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		err := chromedp.Listen(p.context, p.listen)
		if err == nil {
			_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
		}
		if err == nil {
			_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
		}
		return chromedp.Void{}, err
	})
	return p
}

// listen collects the browser's events.
func (p *Page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *runtime.EventConsoleAPICalled:
		switch e.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
			text, _ := json.Marshal(e.Args)
			p.problems = append(p.problems, "console: "+string(text))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.problems = append(p.problems, "log: "+e.Entry.Text+" "+e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && u.Host != "" {
			p.hosts[u.Host] = struct{}{}
		}
	case *page.EventJavascriptDialogOpening:
		go func() {
			_, _ = chromedp.Call(p.context, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
}

// Do runs an action of chromedp and returns its value.
func Do[T any](p *Page, what string, action chromedp.Action[T]) T {
	p.Helper()
	type result struct {
		value T
		err   error
	}
	// The context of the first action owns the browser, so it must not be one with an end.
	done := make(chan result, 1)
	go func() {
		v, err := chromedp.Run(p.context, action)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			p.Fatalf("%s: %v", what, r.err)
		}
		return r.value
	case <-time.After(patience):
		p.Fatalf("%s: nothing happened for %v; the console shows: %s", what, patience, p.problemsSoFar())
		panic("not reached")
	}
}

// Go opens an address.
func (p *Page) Go(address string) {
	p.Helper()
	Do(p, "open "+address, chromedp.Navigate(address))
}

// Eval evaluates JavaScript and returns its value. It waits for a promise.
func Eval[T any](p *Page, script string) T {
	p.Helper()
	return Do(p, script, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// Await waits until JavaScript is true.
func (p *Page) Await(what, script string) {
	p.Helper()
	for end := time.Now().Add(patience); ; {
		if Eval[bool](p, "Boolean("+script+")") {
			return
		}
		if time.Now().After(end) {
			text := Eval[string](p, "document.body.innerText")
			p.Fatalf("%s: did not happen within %v: %s\nproblems: %s\nthe page shows:\n%s", what, patience, script, p.problemsSoFar(), text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Sees waits until texts are on the page.
func (p *Page) Sees(texts ...string) {
	p.Helper()
	for _, text := range texts {
		p.Await("see "+text, fmt.Sprintf("document.body?.innerText.includes(%s)", quote(text)))
	}
}

// Misses waits until a text is not on the page.
func (p *Page) Misses(text string) {
	p.Helper()
	p.Await("miss "+text, fmt.Sprintf("document.body && !document.body.innerText.includes(%s)", quote(text)))
}

// Click clicks the first link or button with a name or a text.
func (p *Page) Click(name string) {
	p.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll('a, button, summary')].find(e => [e.ariaLabel, e.innerText.trim()].includes(%[1]s) && e.offsetParent) ??
		[...document.querySelectorAll('a, button, summary')].find(e => e.innerText.trim().startsWith(%[1]s) && e.offsetParent)`, quote(name))
	p.Await("find "+name, find)
	Eval[chromedp.Void](p, "("+find+").click()")
}

// Fill types a value into the field with a label.
func (p *Page) Fill(label, value string) {
	p.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll('input, select, textarea')].find(e =>
		(e.getAttribute('aria-label') ?? [...(e.labels ?? [])].map(l => l.innerText).join(' ')).trim().startsWith(%s) && e.offsetParent)`, quote(label))
	p.Await("find the field "+label, find)
	Eval[chromedp.Void](p, fmt.Sprintf(`(e => { e.value = %s; for (const n of ['input', 'change']) e.dispatchEvent(new Event(n, {bubbles: true})); })(%s)`,
		quote(value), find))
}

func quote(text string) string {
	b, _ := json.Marshal(text) // a text can be encoded
	return string(b)
}

// Appear sets the width of the window in pixels, and dark or light.
func (p *Page) Appear(width, height int64, dark bool) {
	p.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	Do(p, "set the size", chromedp.EmulateViewport(width, height))
	Do(p, "set the colours", func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return chromedp.Void{}, err
	})
}

// Picture saves a screenshot of the window.
func (p *Page) Picture(name string) {
	p.Helper()
	image := Do(p, "take a picture", chromedp.CaptureScreenshot())
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		p.Fatal(err)
	}
	path := filepath.Join(p.folder, name+".png")
	if err := os.WriteFile(path, image, 0o644); err != nil { //nolint:gosec // a picture of made-up data, for everybody
		p.Fatal(err)
	}
	p.Log("picture:", path)
}

//go:embed accessibility.js
var accessibility string

// CheckAccessibility fails for each element that a screen reader, a keyboard or weak eyes could not use.
func (p *Page) CheckAccessibility(where string) {
	p.Helper()
	for _, problem := range Eval[[]string](p, accessibility) {
		p.Errorf("%s: %s", where, problem)
	}
}

// CheckLightAndDark checks the accessibility of the page as it is now, in both colours.
func (p *Page) CheckLightAndDark(where string) {
	p.Helper()
	for _, dark := range []bool{true, false} {
		p.Appear(1280, 900, dark)
		p.CheckAccessibility(where)
	}
}

// Look is CheckLightAndDark. It saves a picture in each colour.
func (p *Page) Look(name string) {
	p.Helper()
	p.CheckLightAndDark(name)
	p.Picture(name + "-light")
	p.Appear(1280, 900, true)
	p.Picture(name + "-dark")
	p.Appear(1280, 900, false)
}

// CheckConsole fails for each error of the console, and for each request to another host than those given.
func (p *Page) CheckConsole(hosts ...string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.Error(problem)
	}
	for host := range p.hosts {
		if !slices.Contains(hosts, host) {
			p.Errorf("the page sent a request to %s", host)
		}
	}
}

func (p *Page) problemsSoFar() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.problems, "\n")
}
