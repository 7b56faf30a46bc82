#!/usr/bin/env bash
# Proves that the end-to-end suite leaves no process, port or temporary file behind, whether it ends with
# success, with failures, because its time is up, by Ctrl-C, SIGTERM or SIGKILL. Takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
E2E_HYGIENE=1 exec go test -count=1 -timeout=30m -v ./e2e/hygiene "$@"
