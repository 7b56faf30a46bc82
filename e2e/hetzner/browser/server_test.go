package browser

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// TestAServerIsStoppedStartedAndDeletedFromThePage looks at each step with a client's eyes. The page has no token.
func TestAServerIsStoppedStartedAndDeletedFromThePage(t *testing.T) {
	ctx := t.Context()
	token := strings.Repeat("s", 64)
	s := open(t, fakecloud.Options{Tokens: []string{token}})
	s.client = s.cloud.Client(hcloud.WithToken(token))
	s.Sees("the token that the program has printed")
	s.order(ctx, "web-1")
	server := s.server("web-1")
	Eval[chromedp.Void](s.Page,
		"Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { window.copied = text; }}}); undefined")

	s.Click("web-1")
	s.CheckLightAndDark("server with buttons")
	s.Click("Copy the id")
	s.Await("copy it", fmt.Sprintf("window.copied === '%d'", server.ID))
	for _, step := range []struct {
		button    string
		operation string
		status    hcloud.ServerStatus
	}{{"Stop", "poweroff_server", hcloud.ServerStatusOff}, {"Start", "poweron_server", hcloud.ServerStatusRunning}} {
		s.Click(step.button)
		if _, err := s.cloud.Journal().Await(ctx, journal.Filter{Operation: step.operation}, 1); err != nil {
			t.Fatal(err)
		}
		s.Await("show it", fmt.Sprintf("document.querySelector('#detail .state').innerText === %q", step.status))
		if is := s.server("web-1").Status; is != step.status {
			t.Errorf("after %s, a client sees the status %s, want %s", step.button, is, step.status)
		}
	}

	s.Click("POST create_server")
	s.Click("Copy as curl")
	s.Await("copy the request", "window.copied.startsWith('curl')")
	checkCurl(t, s, token, "create_server")
	_, _, err := s.client.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{
		Name: "it's mine", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA mine",
	})
	s.must(err)
	s.Go(s.control + "/#/requests")
	s.Click("POST /v1/ssh_keys")
	s.Click("Copy as curl")
	s.Await("copy the other request", "window.copied.includes('ssh_keys')")
	checkCurl(t, s, token, "create_ssh_key")

	Eval[chromedp.Void](s.Page, fmt.Sprintf("void (location.hash = '#/resource/%d')", server.ID))
	Eval[chromedp.Void](s.Page, "window.confirm = () => false; undefined")
	s.Click("Delete")
	Eval[chromedp.Void](s.Page, "window.confirm = () => true; undefined")
	if n, _ := s.cloud.Journal().Count(ctx, journal.Filter{Operation: "delete_server"}); n != 0 {
		t.Error("the server is deleted although the answer was no")
	}
	s.Click("Delete")
	s.Sees("(deleted)")
	if gone, _, err := s.client.Server.GetByID(ctx, server.ID); gone != nil || err != nil {
		t.Errorf("a client still sees the server: %v, %v", gone, err)
	}
	page := "fetch('.').then(r => r.text()).then(t => t + document.documentElement.outerHTML)"
	if Eval[bool](s.Page, fmt.Sprintf("%s.then(t => t.includes(%q))", page, token)) {
		t.Error("the token is on the page")
	}
}

// checkCurl runs the copied command in a shell. The API refuses it, since the name is taken, but sees the same request.
func checkCurl(t *testing.T, s *shown, token, operation string) {
	t.Helper()
	command := Eval[string](s.Page, "window.copied")
	if !strings.Contains(command, "Bearer $HCLOUD_TOKEN") || strings.Contains(command, token) {
		t.Errorf("the command is %s, want the token's variable, not the token", command)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Log("no curl is here: the command is not run")
		return
	}
	run := exec.CommandContext(t.Context(), "sh", "-c", command) //nolint:gosec // the command of the page
	run.Env = append(run.Environ(), "HCLOUD_TOKEN="+token, "HCLOUD_ENDPOINT="+s.cloud.Endpoint())
	out, err := run.Output()
	if err != nil || !strings.Contains(string(out), "uniqueness_error") {
		t.Errorf("%s answers %s, %v; want uniqueness_error", command, out, err)
	}
	if n, _ := s.cloud.Journal().Count(t.Context(), journal.Filter{Operation: operation}); n != 2 {
		t.Errorf("%d requests %s, want that of the client and that of curl", n, operation)
	}
}
