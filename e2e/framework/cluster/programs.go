package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// EnvPrograms is the environment variable, known from controller-runtime's envtest, that names a folder with a control plane's programs.
const EnvPrograms = "KUBEBUILDER_ASSETS"

// ErrNoPrograms says that this host has no programs of a control plane where they are looked for.
var ErrNoPrograms = errors.New("the control plane's programs are not found: set " + EnvPrograms + " to a folder with etcd, " +
	"kube-apiserver, kube-controller-manager and kubectl, as e2e/PORTING.md says, or run `make kubernetes` in a checkout of ccm-from-scratch")

// FindPrograms returns the folder with a control plane's programs: the one that EnvPrograms names, else the newest one that `make
// kubernetes` has put into the user's cache.
func FindPrograms() (string, error) {
	if given := os.Getenv(EnvPrograms); given != "" {
		if missing := missingPrograms(given); len(missing) > 0 {
			return "", fmt.Errorf("%s=%s: has no %s: download what is missing into that folder, as e2e/PORTING.md says (setup-envtest "+
				"brings no kube-controller-manager)", EnvPrograms, given, strings.Join(missing, " and no "))
		}
		return given, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNoPrograms, err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "ccm-from-scratch", "kubernetes", "v*"))
	if err != nil {
		return "", err
	}
	newest, when := "", time.Time{}
	for _, folder := range found {
		info, err := os.Stat(folder)
		if err != nil || strings.Contains(filepath.Base(folder), ".tmp-") || len(missingPrograms(folder)) > 0 { // half made
			continue
		}
		if info.ModTime().After(when) {
			newest, when = folder, info.ModTime()
		}
	}
	if newest == "" {
		return "", ErrNoPrograms
	}
	return newest, nil
}

// missingPrograms returns which programs a folder lacks.
func missingPrograms(folder string) []string {
	return slices.DeleteFunc([]string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}, func(name string) bool {
		info, err := os.Stat(filepath.Join(folder, name))
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	})
}
