package guests_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/crypto/ssh"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/guests"
)

// world is a cloud with a door, a key that its servers have, and a client.
type world struct {
	*testing.T
	cloud  *fakecloud.Cloud
	door   *guests.Door
	client *hcloud.Client
	signer ssh.Signer
	key    *hcloud.SSHKey
}

func newSigner(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func newWorld(t *testing.T, o guests.Options) *world {
	t.Helper()
	cloud := fakecloud.New(fakecloud.Options{})
	t.Cleanup(cloud.Close)
	door, err := guests.Start(t.Context(), cloud, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = door.Close() })
	w := &world{T: t, cloud: cloud, door: door, client: cloud.Client(), signer: newSigner(t)}
	w.key, _, err = w.client.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "k",
		PublicKey: string(ssh.MarshalAuthorizedKey(w.signer.PublicKey()))})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// create creates a server and waits until it runs. Without keys, it has a password.
func (w *world) create(name string, keys ...*hcloud.SSHKey) (*hcloud.Server, string) {
	w.Helper()
	return w.createFrom(&hcloud.Image{Name: "debian-13"}, name, keys...)
}

func (w *world) createFrom(image *hcloud.Image, name string, keys ...*hcloud.SSHKey) (*hcloud.Server, string) {
	w.Helper()
	r, _, err := w.client.Server.Create(w.Context(), hcloud.ServerCreateOpts{Name: name, SSHKeys: keys,
		ServerType: &hcloud.ServerType{Name: "cx23"}, Image: image})
	w.must(err)
	w.await(append(r.NextActions, r.Action)...)
	return r.Server, r.RootPassword
}

func (w *world) await(actions ...*hcloud.Action) {
	w.Helper()
	w.must(w.client.Action.WaitFor(w.Context(), actions...))
}

// did waits for the action of a call.
func (w *world) did(a *hcloud.Action, _ *hcloud.Response, err error) {
	w.Helper()
	w.must(err)
	w.await(a)
}

// dial logs in.
func (w *world) dial(server *hcloud.Server, auth ...ssh.AuthMethod) (*ssh.Client, error) {
	w.Helper()
	g, err := w.door.Guest(w.Context(), server.ID)
	w.must(err)
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(g.HostKey))
	w.must(err)
	return ssh.Dial("tcp", g.Address, &ssh.ClientConfig{User: "root", Auth: auth, HostKeyCallback: ssh.FixedHostKey(hostKey)})
}

func (w *world) login(server *hcloud.Server, auth ...ssh.AuthMethod) *ssh.Client {
	w.Helper()
	if len(auth) == 0 {
		auth = []ssh.AuthMethod{ssh.PublicKeys(w.signer)}
	}
	c, err := w.dial(server, auth...)
	w.must(err)
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// run runs a command, and returns what it prints and its exit status.
func (w *world) run(c *ssh.Client, command, input string) (out string, status int) {
	w.Helper()
	s, err := c.NewSession()
	w.must(err)
	s.Stdin = strings.NewReader(input)
	b, err := s.CombinedOutput(command)
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		return string(b), exit.ExitStatus()
	}
	w.must(err)
	return string(b), 0
}

// try logs in, and fails the test if that does not end as wanted.
func (w *world) try(when string, server *hcloud.Server, want bool, auth ssh.AuthMethod) {
	w.Helper()
	c, err := w.dial(server, auth)
	if (err == nil) != want {
		w.Errorf("%s: %v, want success: %v", when, err, want)
	}
	if err == nil {
		_ = c.Close()
	}
}

func (w *world) status(server *hcloud.Server) hcloud.ServerStatus {
	w.Helper()
	s, _, err := w.client.Server.GetByID(w.Context(), server.ID)
	w.must(err)
	return s.Status
}

func TestCommandsAnswer(t *testing.T) {
	t.Parallel()
	rules, err := guests.ParseRules([]byte(`
- {match: ^nginx -v$, stderr: "nginx/1.26.3\n"}
- {match: ^make, server: ^other, output: "wrong\n"}
- {match: ^make, output: "1 failed\n", exit_code: 2}
- {match: "^a [|] b$", output: "piped\n"}
`))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, guests.Options{Rules: rules})
	server, _ := w.create("web-1", w.key)
	c := w.login(server)
	const ruleHint = "let a rule of --guests-rules answer"
	for _, tc := range []struct {
		command, input, want string
		status               int
	}{
		{"true", "", "", 0},
		{"false", "", "", 1},
		{"/bin/false || exit 300", "", "", 44},
		{"hostname", "", "web-1\n", 0},
		{"uname", "", "Linux\n", 0},
		{"uname -a", "", "Linux web-1 6.12.0-fakecloud #1 SMP x86_64 GNU/Linux\n", 0},
		{"cloud-init status --wait", "", "status: done\n", 0},
		{"cat /etc/os-release", "", "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID=\"13\"\nVERSION_CODENAME=trixie\n" +
			"PRETTY_NAME=\"Debian GNU/Linux 13\"\n", 0},
		{"cat /none", "", "cat: /none: No such file or directory\n", 1},
		{"cat /etc", "", "cat: /etc: Is a directory\n", 1},
		{"cat", "from here", "from here", 0},
		{"nginx -v", "", "nginx/1.26.3\n", 0},
		{"make && echo no", "", "1 failed\n", 2},
		{"echo a; make", "", "a\n1 failed\n", 2},
		{"a | b", "", "piped\n", 0},
		{"true; make || echo $? \"$HOME\"'$HOME' \\$HOME ${NONE}x # comment", "", "1 failed\n2 /root$HOME $HOME x\n", 0},
		{"apt-get install -y nginx", "", "bash: apt-get: command not found (fakecloud runs nothing: " + ruleHint + ")\n", 127},
		{"echo $(id)", "", "bash: echo $(id): fakecloud runs no shell: it substitutes no commands; " + ruleHint + "\n", 127},
		{"echo a > b", "", "bash: echo a > b: fakecloud runs no shell: it has no \">\"; " + ruleHint + "\n", 127},
		{"echo 'a", "", "bash: echo 'a: fakecloud runs no shell: a quote is not closed; " + ruleHint + "\n", 127},
		{"A=1 B='2 3' && export C=$B; echo \"$A $C\"", "", "1 2 3\n", 0},
		{"sh -c 'echo x; exit 3' || echo $?", "", "x\n3\n", 0},
		{"bash -s", "echo one\n\nmake\necho two\n", "one\n1 failed\ntwo\n", 0},
		{"sh -e", "make\necho two\n", "1 failed\n", 2},
		{"/etc/hostname", "", "bash: /etc/hostname: Permission denied\n", 126},
		{"/bin/none", "", "bash: none: command not found (fakecloud runs nothing: " + ruleHint + ")\n", 127},
		{"chmod x /none", "", "chmod: /none: No such file or directory\n", 1},
		{"rm /tmp", "", "", 0}, {"rm -f /none", "", "", 0}, {"rm /etc", "", "rm: /etc: Directory not empty\n", 1},
		{"scp x", "", "bash: scp: only -t and -f, which another scp sends, are known; use SFTP\n", 1},
	} {
		if out, status := w.run(c, tc.command, tc.input); out != tc.want || status != tc.status {
			t.Errorf("%s: %d %q\nwant %d %q", tc.command, status, out, tc.status, tc.want)
		}
	}
}

func TestASessionHasAnEnvironmentAShellAndATerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	server, _ := w.create("web-1", w.key)
	c := w.login(server)
	for _, tc := range []struct {
		pty         bool
		input, want string
		status      int
	}{
		{false, "echo $LANG\nfalse\n", "C.UTF-8\n", 1},
		{false, "export A=2\necho $A $TERM\nexit 7\necho no", "2 \n", 7},
		{false, strings.Repeat("x", 70<<10) + "\necho no\n", "", 0}, // a line that is too long ends the shell
		{true, "echo $TERM\rhostnamx\x7fe\rexit 4\r", "root@web-1:~# echo $TERM\r\nxterm\r\n" +
			"root@web-1:~# hostnamx\x1b[D \x1b[De\r\nweb-1\r\n" +
			"root@web-1:~# exit 4\r\n", 4},
	} {
		s, err := c.NewSession()
		w.must(err)
		w.must(s.Setenv("LANG", "C.UTF-8"))
		if tc.pty {
			w.must(s.RequestPty("xterm", 24, 80, ssh.TerminalModes{}))
		}
		var out bytes.Buffer
		s.Stdin, s.Stdout = strings.NewReader(tc.input), &out
		w.must(s.WindowChange(50, 100))
		w.must(s.Shell())
		err = s.Wait()
		exit, _ := errors.AsType[*ssh.ExitError](err)
		if out.String() != tc.want || tc.status == 0 && err != nil && !errors.Is(err, io.EOF) || // which is the end of what it sends
			tc.status != 0 && (exit == nil || exit.ExitStatus() != tc.status) {
			t.Errorf("%.40q: %v %q, want %d %q", tc.input, err, out.String(), tc.status, tc.want)
		}
	}
}

// TestEachWayIn has keys and passwords before and after what changes them.
func TestEachWayIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	byKey, none := w.create("by-key", w.key)
	byPassword, first := w.create("by-password")
	other := ssh.PublicKeys(newSigner(t))
	mine := ssh.PublicKeys(w.signer)
	w.try("a server with the key", byKey, true, mine)
	w.try("another key", byKey, false, other)
	w.try("a server with a key has no password", byKey, false, ssh.Password(none))
	w.try("its password", byPassword, true, ssh.Password(first))
	w.try("a server without the key", byPassword, false, mine)
	w.try("the beginning of its password", byPassword, false, ssh.Password(first[:19]))
	g, err := w.door.Guest(t.Context(), byPassword.ID)
	w.must(err)
	if c, err := ssh.Dial("tcp", g.Address, &ssh.ClientConfig{User: "admin", Auth: []ssh.AuthMethod{mine, ssh.Password(first)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey()}); err == nil {
		_ = c.Close()
		t.Error("a user other than root is let in")
	}

	reset, _, err := w.client.Server.ResetPassword(t.Context(), byPassword)
	w.must(err)
	w.await(reset.Action)
	w.try("the old password", byPassword, false, ssh.Password(first))
	w.try("the new password", byPassword, true, ssh.Password(reset.RootPassword))
}

func TestARenamedServerIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	server, _ := w.create("web-1", w.key)
	_, _, err := w.client.Server.Update(t.Context(), server, hcloud.ServerUpdateOpts{Name: "web-2"})
	w.must(err)
	answer := httptest.NewRecorder()
	w.door.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/doors/guests?server=web-2", nil))
	if !strings.Contains(answer.Body.String(), `"name":"web-2"`) {
		t.Errorf("after the change of the name: %s", answer.Body)
	}
}

func TestAConnectionTooManyWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	server, _ := w.create("web-1", w.key)
	g, err := w.door.Guest(t.Context(), server.ID)
	w.must(err)
	const most = 32
	greeting := make([]byte, len("SSH-2.0-"))
	var all []net.Conn
	for i := range most + 1 {
		c, err := net.Dial("tcp", g.Address)
		w.must(err)
		t.Cleanup(func() { _ = c.Close() })
		if all = append(all, c); i < most {
			_, err = io.ReadFull(c, greeting)
			w.must(err)
		}
	}
	w.must(all[most].SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
	if _, err := all[most].Read(greeting); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connection %d was greeted: %q, %v", most+1, greeting, err)
	}
	w.must(all[0].Close())
	w.must(all[most].SetReadDeadline(time.Time{}))
	_, err = io.ReadFull(all[most], greeting)
	w.must(err)
}

// TestRescueModeAndARebuildChangeTheWaysIn has a server with a password.
func TestRescueModeAndARebuildChangeTheWaysIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	byPassword, password := w.create("by-password")
	mine := ssh.PublicKeys(w.signer)
	rescue, _, err := w.client.Server.EnableRescue(t.Context(), byPassword, hcloud.ServerEnableRescueOpts{Type: "linux64",
		SSHKeys: []*hcloud.SSHKey{w.key}})
	w.must(err)
	w.await(rescue.Action)
	w.try("rescue mode before the boot", byPassword, false, mine)
	w.did(w.client.Server.Reboot(t.Context(), byPassword))
	w.try("the key of rescue mode", byPassword, true, mine)
	w.try("the password of rescue mode", byPassword, true, ssh.Password(rescue.RootPassword))
	w.try("the password of the disk in rescue mode", byPassword, false, ssh.Password(password))
	if out, _ := w.run(w.login(byPassword), "hostname", ""); out != "rescue\n" {
		t.Errorf("the rescue system is %q", out)
	}
	w.did(w.client.Server.Reboot(t.Context(), byPassword))
	w.try("after rescue mode", byPassword, true, ssh.Password(password))
	again, _, err := w.client.Server.EnableRescue(t.Context(), byPassword, hcloud.ServerEnableRescueOpts{Type: "linux64"})
	w.must(err)
	w.await(again.Action)
	w.must(w.cloud.Step(t.Context(), 61*time.Minute))
	before := w.login(byPassword, ssh.Password(password))
	w.run(before, "reboot", "") // an action would have the cloud look, too
	_ = before.Wait()
	w.try("a boot an hour after rescue mode was enabled", byPassword, true, ssh.Password(password))

	rebuilt, _, err := w.client.Server.RebuildWithResult(t.Context(), byPassword, hcloud.ServerRebuildOpts{
		Image: &hcloud.Image{Name: "ubuntu-24.04"}})
	w.must(err)
	w.await(rebuilt.Action)
	w.try("the password from before the rebuild", byPassword, false, ssh.Password(password))
	c := w.login(byPassword, ssh.Password(rebuilt.RootPassword))
	if out, _ := w.run(c, "cat /etc/os-release", ""); !strings.Contains(out, "VERSION_CODENAME=noble") {
		t.Errorf("after the rebuild: %s", out)
	}
}

func TestASnapshotHasTheFilesOfItsServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	golden, _ := w.create("golden", w.key)
	w.run(w.login(golden), "scp -t /etc/golden", "C0640 4 x\nwhat\x00")
	snapshot, _, err := w.client.Server.CreateImage(t.Context(), golden, &hcloud.ServerCreateImageOpts{Type: hcloud.ImageTypeSnapshot})
	w.must(err)
	w.await(snapshot.Action)
	w.run(w.login(golden), "rm /etc/golden", "")
	deleted, _, err := w.client.Server.DeleteWithResult(t.Context(), golden)
	w.must(err)
	w.await(deleted.Action)
	check := func(when string, server *hcloud.Server, want string, auth ...ssh.AuthMethod) {
		t.Helper()
		c := w.login(server, auth...)
		out, _ := w.run(c, "cat /etc/golden", "")
		if name, _ := w.run(c, "hostname", ""); out != want || name != server.Name+"\n" {
			t.Errorf("%s: %q on %q", when, out, name)
		}
	}
	server, _ := w.createFrom(snapshot.Image, "web-1", w.key)
	check("a server from the snapshot", server, "what")
	w.run(w.login(server), "scp -t /etc/golden", "C0640 4 x\nmine\x00")
	other, _ := w.createFrom(snapshot.Image, "web-2", w.key)
	check("a second server, after a change in the first", other, "what")
	rebuild := func(image *hcloud.Image) ssh.AuthMethod {
		r, _, err := w.client.Server.RebuildWithResult(t.Context(), server, hcloud.ServerRebuildOpts{Image: image})
		w.must(err)
		w.await(r.Action)
		return ssh.PublicKeys(w.signer)
	}
	check("a rebuild from the snapshot", server, "what", rebuild(snapshot.Image))
	debian := &hcloud.Image{Name: "debian-13"}
	check("a rebuild from another image", server, "cat: /etc/golden: No such file or directory\n", rebuild(debian))
}

// TestAGuestEndsWithItsServer has each way in which a guest stops and starts.
func TestAGuestEndsWithItsServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	server, _ := w.create("web-1", w.key)
	ctx, s := t.Context(), w.client.Server
	address := func() string {
		g, err := w.door.Guest(ctx, server.ID)
		w.must(err)
		return g.Address
	}
	on := func() { t.Helper(); w.did(s.Poweron(ctx, server)); w.login(server) }
	before := address()
	for name, off := range map[string]func(*ssh.Client){
		"power off": func(*ssh.Client) { w.did(s.Poweroff(ctx, server)) },
		"shutdown":  func(*ssh.Client) { w.did(s.Shutdown(ctx, server)) },
		"poweroff":  func(c *ssh.Client) { w.run(c, "poweroff", "") },
		"shut down": func(c *ssh.Client) { w.run(c, "echo x && shutdown -h now && echo no", "") },
	} {
		c := w.login(server)
		off(c)
		if err := c.Wait(); err == nil {
			t.Errorf("%s: the connection lasts", name)
		}
		for w.status(server) != hcloud.ServerStatusOff { // a guest that turns itself off is a little faster than the cloud
			if ctx.Err() != nil {
				t.Fatalf("%s: the server is %s", name, w.status(server))
			}
		}
		if conn, err := net.Dial("tcp", before); err == nil {
			_ = conn.Close()
			t.Errorf("%s: something listens", name)
		}
		on()
	}
	if address() != before {
		t.Errorf("the guest has moved from %s to %s", before, address())
	}
	for name, again := range map[string]func(*ssh.Client){
		"reboot action": func(*ssh.Client) { w.did(s.Reboot(ctx, server)) },
		"reset":         func(*ssh.Client) { w.did(s.Reset(ctx, server)) },
		"reboot":        func(c *ssh.Client) { w.run(c, "reboot", "") },
		"shutdown -r":   func(c *ssh.Client) { w.run(c, "shutdown -r now", "") },
	} {
		c := w.login(server)
		again(c)
		if err := c.Wait(); err == nil {
			t.Errorf("%s: the connection lasts", name)
		}
		w.login(server)
	}
	if _, _, err := s.DeleteWithResult(ctx, server); err != nil {
		t.Fatal(err)
	}
	for len(w.door.Guests()) > 0 {
		if ctx.Err() != nil {
			t.Fatalf("%+v", w.door.Guests())
		}
	}
}

func TestABootAndACommandTakeTheirTimeOnTheCloudsClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{BootTime: time.Minute, Rules: []guests.Rule{{Match: "^sleep", Delay: 3600e9, Output: "done\n"}}})
	w.must(w.cloud.SetSpeed(t.Context(), 0))
	w.must(w.cloud.SetProfile(t.Context(), "instant"))
	server, _ := w.create("web-1", w.key)
	if g := w.door.Guests(); len(g) != 1 || g[0].Address != "" {
		t.Fatalf("it answers before it has booted: %+v", g)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.door.Guest(ctx, server.ID); err == nil || !strings.Contains(err.Error(), "step the clock by the boot time") {
		t.Error(err)
	}
	w.must(w.cloud.Step(t.Context(), time.Minute))
	c := w.login(server)
	session, err := c.NewSession()
	w.must(err)
	out, err := session.StdoutPipe()
	w.must(err)
	w.must(session.Start("sleep 1h"))
	first := make(chan string)
	go func() {
		b, _ := io.ReadAll(out)
		first <- string(b)
	}()
	for { // the command waits for the clock soon after it was started
		w.must(w.cloud.Step(t.Context(), time.Hour))
		select {
		case got := <-first:
			if got != "done\n" {
				t.Errorf("%q", got)
			}
			return
		default:
		}
	}
}

func TestTheLogHasCommandsAndNoTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	one, _ := w.create("one", w.key)
	two, password := w.create("two")
	w.run(w.login(one), "export HCLOUD_TOKEN="+w.cloud.Token(), "")
	w.run(w.login(two, ssh.Password(password)), strings.Repeat("y", 5000), "")
	e, err := w.door.Await(t.Context(), one.ID, "^export")
	if err != nil || e.Command != "export HCLOUD_TOKEN=REDACTED" || e.Kind != "exec" || e.Name != "one" || e.ExitCode != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := w.door.Await(t.Context(), 0, "^y"); err != nil || len(e.Command) != 4096+len("…") || e.ExitCode != 127 {
		t.Errorf("%d, %v", len(e.Command), err)
	}
	if n := len(w.door.Log(one.ID)); n != 1 {
		t.Errorf("%d entries", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.door.Await(ctx, one.ID, "^none"); err == nil || !strings.Contains(err.Error(), "told 1 other commands") {
		t.Error(err)
	}
	if _, err := w.door.Await(ctx, one.ID, "("); err == nil {
		t.Error("a wrong pattern")
	}
	c := w.login(one)
	for i := range 1100 {
		w.run(c, fmt.Sprint("echo ", i), "")
	}
	if n := len(w.door.Log(0)); n != 1000 {
		t.Errorf("%d entries", n)
	}
}

// TestASnapshotBringsItsGuests loads a snapshot into a cloud with other servers.
func TestASnapshotBringsItsGuests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guests.Options{})
	server, _ := w.create("in-snapshot", w.key)
	var snapshot bytes.Buffer
	w.must(w.cloud.Save(t.Context(), &snapshot))
	later, _ := w.create("later", w.key)
	c := w.login(later)
	w.must(w.cloud.Restore(t.Context(), &snapshot))
	if err := c.Wait(); err == nil {
		t.Error("the guest of a server that is gone lasts")
	}
	if out, _ := w.run(w.login(server), "hostname", ""); out != "in-snapshot\n" {
		t.Errorf("%q", out)
	}
	w.create("new", w.key)
	if n := len(w.door.Guests()); n != 2 {
		t.Errorf("%d guests", n)
	}
}

func TestTheRulesOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../DOORS.md")
	block := regexp.MustCompile("(?s)```yaml\n(- match.*?)```").FindSubmatch(page)
	if err != nil || block == nil {
		t.Fatal(err)
	}
	if rules, err := guests.ParseRules(block[1]); err != nil || len(rules) != 2 || rules[1].ExitCode != 100 {
		t.Errorf("%+v, %v", rules, err)
	}
}
