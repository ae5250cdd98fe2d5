#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures against the targets, with a container engine. Arguments go to the benchmark, see go run ./internal/bench -h.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/engine.sh
engine bench

go run ./internal/bench -bin bin "$@"
