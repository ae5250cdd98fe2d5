#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures against the targets. Arguments go to the benchmark, see go run ./internal/bench -h.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run ./internal/bench -bin bin "$@"
