#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests, with the guest in place so that the drivers under test carry it, and with a container engine.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/engine.sh
engine tests

make --no-print-directory guest
go vet ./...
# The time limit ends what hangs; it measures nothing.
go test -timeout 15m "$@" ./...
