#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures against the targets, with a container engine and fakes of the vendors. Arguments go to the benchmark, see
# go run ./internal/bench -h.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/engine.sh
engine bench

go build -o bin/fake-daytona ./plugins/daytona/internal/fake/program
go build -o bin/fake-e2b ./plugins/e2b/internal/fakee2b/program
go build -o bin/fake-modal ./plugins/modal/internal/fake/program

go run ./internal/bench -bin bin "$@"
