#!/bin/bash
# First process of a kind node that runs without --privileged, before kind's own
# entry point: docker mounts cgroups read-only into such a container, and
# containerd must not ask for less protection from the OOM killer than it has,
# which takes the missing capability.
set -euo pipefail
findmnt --list --noheadings --output TARGET --types cgroup,cgroup2 | while read -r mount; do
	mount -o remount,rw,bind "$mount" || echo "WARN: $mount stays read-only" >&2
done
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' /etc/containerd/config.toml
exec "$@"
