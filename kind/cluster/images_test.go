package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeNodes puts a docker first in PATH whose containers are folders below the one that it returns. What is imported into
// a node's containerd is appended to its file "imported".
func fakeNodes(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	fakeDocker(t, `
case $1 in
ps) cat `+root+`/running | tr '\n' ' ' ;;
inspect)
	shift; echo '['; first=yes
	for n; do
		[ -n "$first" ] || echo ,
		first=
		echo '{"Name":"/'"$n"'","State":{"Running":true},"Config":{"Labels":{}},"NetworkSettings":{"Networks":{"c":{"IPAMConfig":{"IPv4Address":"172.30.1.2"}}}}}'
	done
	echo ']' ;;
exec)
	shift
	while [ "${1#-}" != "$1" ]; do shift; done
	node=`+root+`/$1; shift; mkdir -p "$node/kind"
	case $1 in
	ctr) cat >>"$node/imported"; echo >>"$node/imported" ;;
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
	// What was loaded before and is loaded again may have its name back.
	load("one")
	expect("c-worker", "one", "two", "one")
	if err := c.CopyImages(t.Context(), "last"); err != nil {
		t.Fatal(err)
	}
	expect("last", "two", "one")
}
