#!/usr/bin/env bash
# Writes what is generated from ccm/machine/v1alpha1: the methods DeepCopy, and the CRDs. With --check, it fails if something is out
# of date.
set -euo pipefail
cd "$(dirname "$0")/.."

types=./ccm/machine/v1alpha1 crds=ccm/machine/deploy/crds
generator=$(scripts/tool.sh controller-gen)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
"$generator" object paths=$types "output:object:dir=$new"
"$generator" crd paths=$types "output:crd:dir=$new/crds"
if [ "${1:-}" = --check ]; then
	if ! diff -u $types/zz_generated.deepcopy.go "$new/zz_generated.deepcopy.go" || ! diff -ru $crds "$new/crds"; then
		echo "generated files are out of date: run make generate" >&2
		exit 1
	fi
else
	cp "$new/zz_generated.deepcopy.go" $types
	rm -f $crds/*.yaml # one whose type is gone must go, too
	cp "$new"/crds/*.yaml $crds
fi
