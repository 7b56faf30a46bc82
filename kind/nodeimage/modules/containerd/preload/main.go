// Command preload puts the images of `docker save` archives into a containerd
// root folder that no containerd runs on: what `ctr --namespace=k8s.io images
// import --no-unpack` does with a daemon, done with containerd's own libraries.
// A node image that is made this way needs neither a container nor privileges.
//
//	preload --root DIR ARCHIVE…
//
// The names of the images are those in the archive; they are printed, one per
// line. Images are pinned, so that the kubelet never removes them to save room.
// Layers are not unpacked: snapshots on overlayfs cannot be part of an image's
// layer, so the node unpacks them when it first starts a container.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
)

// namespace is the one that containerd's CRI plugin looks into.
const namespace = "k8s.io"

// pinned is the CRI plugin's label of images that are never garbage.
var pinned = map[string]string{"io.cri-containerd.pinned": "pinned"}

func main() {
	root := flag.String("root", "", "containerd's root `folder`, as /var/lib/containerd of the node")
	flag.Parse()
	if *root == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: preload --root DIR ARCHIVE...")
		os.Exit(2)
	}
	if err := run(*root, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "preload:", err)
		os.Exit(1)
	}
}

// run opens the folder's stores where containerd's plugins will look for them,
// each in a folder that is named after the plugin, and imports the archives.
func run(root string, archives []string) (err error) {
	blobs, err := local.NewStore(filepath.Join(root, "io.containerd.content.v1.content"))
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "io.containerd.metadata.v1.bolt")
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	file, err := bolt.Open(filepath.Join(dir, "meta.db"), 0o644, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	ctx := namespaces.WithNamespace(context.Background(), namespace)
	db := metadata.NewDB(file, blobs, nil)
	if err := db.Init(ctx); err != nil {
		return err
	}
	for _, path := range archives {
		if err := load(ctx, db, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// load imports one archive.
func load(ctx context.Context, db *metadata.DB, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	store := db.ContentStore()
	index, err := archive.ImportIndex(ctx, store, file)
	if err != nil {
		return err
	}
	manifests, err := images.Children(ctx, store, index)
	if err != nil {
		return err
	}
	for _, manifest := range manifests {
		name := manifest.Annotations[images.AnnotationImageName]
		if name == "" {
			return fmt.Errorf("the image %s has no name", manifest.Digest)
		}
		if err := keep(ctx, db, name, manifest); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Println(name)
	}
	return nil
}

// keep records the image under its name, and on each blob which blobs it refers
// to: without that, containerd's garbage collector would take the layers away.
func keep(ctx context.Context, db *metadata.DB, name string, manifest v1.Descriptor) error {
	store := db.ContentStore()
	handler := images.SetChildrenLabels(store, images.HandlerFunc(
		func(ctx context.Context, blob v1.Descriptor) ([]v1.Descriptor, error) {
			return children(ctx, store, blob)
		}))
	if err := images.Walk(ctx, handler, manifest); err != nil {
		return err
	}
	manifest.Annotations = nil // they served to carry the name
	image := images.Image{Name: name, Target: manifest, Labels: pinned}
	service := metadata.NewImageStore(db)
	_, err := service.Create(ctx, image)
	if errdefs.IsAlreadyExists(err) {
		_, err = service.Update(ctx, image)
	}
	return err
}

// children returns what the blob refers to; all of it must be in the store.
func children(ctx context.Context, store content.Store, blob v1.Descriptor) ([]v1.Descriptor, error) {
	if _, err := store.Info(ctx, blob.Digest); err != nil {
		return nil, err
	}
	return images.Children(ctx, store, blob)
}
