package doorstest_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTranscriptOfTheDoors runs the commands of DOORS.md in a shell, with free ports, and compares what they print.
func TestTheTranscriptOfTheDoors(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "hcloud", "curl", "dig"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing; apt-get install hcloud-cli curl bind9-dnsutils", program)
		}
	}
	page, err := os.ReadFile("../../DOORS.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- run by TestTheTranscriptOfTheDoors -->\n```console\n(.*?)```").FindStringSubmatch(string(page))
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/fakecloud").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var ports []string
	for _, port := range []string{"4245", "5300"} { // of the page
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = socket.Close()
		_, free, _ := net.SplitHostPort(socket.Addr().String())
		ports = append(ports, port, free)
	}
	var script strings.Builder
	want := ""
	for line := range strings.Lines(strings.NewReplacer(ports...).Replace(block[1])) {
		command, ok := strings.CutPrefix(line, "$ ")
		want += line
		if ok {
			fmt.Fprintf(&script, "cat <<'EOF'\n%sEOF\n%s", line, command)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "exec 2>&1\ntrap 'fakecloud stop >/dev/null' EXIT\n"+script.String())
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "FAKECLOUD_LISTEN=127.0.0.1:0",
		"FAKECLOUD_CONTROL=127.0.0.1:0", "FAKECLOUD_STATE_FILE="+filepath.Join(bin, "server.json"), "HCLOUD_TOKEN=")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}
