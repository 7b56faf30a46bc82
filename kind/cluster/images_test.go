package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeNodes puts a docker first in PATH that takes folders for containers. It returns their parent folder. Images that are imported into a
// node's containerd are appended to its file "imported".
func fakeNodes(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	fakeDocker(t, `
case $1 in
ps) cat `+root+`/running | tr '\n' ' ' ;;
inspect)
	if [ "$2" = --format ]; then
		[ ! -e `+root+`/$4/gone ] || { echo "Error: No such object: $4" >&2; exit 1; }
		cat `+root+`/$4/started 2>/dev/null || echo earlier; exit
	fi
	shift; echo '['; first=yes
	for n; do
		[ -n "$first" ] || echo ,
		first=
		echo '{"Name":"/'"$n"'","State":{"Running":true},"Config":{"Labels":{}},'\
'"NetworkSettings":{"Networks":{"c":{"IPAMConfig":{"IPv4Address":"172.30.1.2"}}}}}'
	done
	echo ']' ;;
exec)
	shift
	while [ "${1#-}" != "$1" ]; do shift; done
	node=`+root+`/$1; shift; mkdir -p "$node/kind"
	case $1 in
	ctr)
		if [ -e "$node/broken" ]; then
			[ ! -e "$node/restarts" ] || { rm "$node/broken"; echo later >"$node/started"; }
			exit 137
		fi
		cat >>"$node/imported"; echo >>"$node/imported" ;;
	cat) cat "$node/$2" ;;
	sh) exec sh "$2" "$(echo "$3" | sed "s#/kind/#$node/kind/#g")" | sed "s#$node##g" ;;
	esac ;;
esac`)
	return root
}

func TestImagesReachAllNodesAndThoseThatComeLater(t *testing.T) {
	root := fakeNodes(t)
	c := &Cluster{Network: Network{Name: "c", Subnet: DefaultSubnet}}
	run := func(nodes ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "running"), []byte(strings.Join(nodes, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func(text string) {
		t.Helper()
		archive := filepath.Join(t.TempDir(), "a.tar")
		if err := os.WriteFile(archive, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.LoadImage(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(node string, want ...string) {
		t.Helper()
		got, err := os.ReadFile(filepath.Join(root, node, "imported"))
		if len(want) == 0 && os.IsNotExist(err) {
			return
		}
		if err != nil || strings.TrimSpace(string(got)) != strings.Join(want, "\n") {
			t.Errorf("%s has imported %q, want %q, %v", node, bytes.Fields(got), want, err)
		}
	}
	run("c-control-plane", "c-worker")
	load("one")
	load("one")
	expect("c-control-plane", "one")
	expect("c-worker", "one")
	// A node that joins gets it, and one that was off gets what it has missed.
	if err := c.CopyImages(t.Context(), "joins"); err != nil {
		t.Fatal(err)
	}
	expect("joins", "one")
	load("two")
	expect("joins", "one")
	if err := c.CopyImages(t.Context(), "joins"); err != nil {
		t.Fatal(err)
	}
	expect("joins", "one", "two")
	// An image that is loaded again may get its name back.
	load("one")
	expect("c-worker", "one", "two", "one")
	if err := c.CopyImages(t.Context(), "last"); err != nil {
		t.Fatal(err)
	}
	expect("last", "two", "one")
}

func TestImagesAreLoadedThoughANodeGoesAwayMeanwhile(t *testing.T) {
	root := fakeNodes(t)
	c := &Cluster{Network: Network{Name: "c", Subnet: DefaultSubnet}}
	archive := filepath.Join(root, "a.tar")
	// More than a pipe holds, so that a source that is not read waits.
	for name, content := range map[string]string{"a.tar": strings.Repeat("x", 1<<20), "running": "c-control-plane\nleaving",
		"leaving/broken": ""} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.LoadImage(t.Context(), archive); err == nil {
		t.Error("no error, although a node that runs did not take the image")
	}
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "leaving", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("restarts")
	if err := c.LoadImage(t.Context(), archive); err != nil {
		t.Errorf("a node that was powered off and on: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "leaving", "imported")); err != nil || len(got) != 1<<20+1 {
		t.Errorf("a node that was powered off and on has %d bytes of images, %v", len(got), err)
	}
	for _, name := range []string{"kind/images-loaded", "broken", "gone"} {
		write(name)
	}
	if err := c.LoadImage(t.Context(), archive); err != nil {
		t.Errorf("a node that was removed: %v", err)
	}
}
