#!/usr/bin/env bash
# Writes what is generated from ccm/machine/v1alpha1: the methods DeepCopy, and the CRDs. scripts/crds pins controller-gen. A
# test in that folder fails when something that is written here is out of date.
set -euo pipefail
cd "$(dirname "$0")/.."

types=./ccm/machine/v1alpha1
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
scripts/progress.sh "compiling controller-gen" env GOWORK=off go build -C scripts/crds -v -o "$bin/" sigs.k8s.io/controller-tools/cmd/controller-gen
rm -f ccm/machine/deploy/crds/*.yaml # one whose type is gone must go, too
"$bin/controller-gen" object paths=$types
"$bin/controller-gen" crd paths=$types output:crd:dir=ccm/machine/deploy/crds
