#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target for a while. usage: fuzz.sh DURATION
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rl --include='*_test.go' '^func Fuzz' . | while read -r f; do
  dir=$(dirname "$f")
  grep -oE '^func Fuzz[A-Za-z0-9_]*' "$f" | awk '{print $2}' | while read -r t; do
    echo "== $dir $t"
    go test "$dir" -run '^$' -fuzz "^$t\$" -fuzztime "${1:-10s}"
  done
done
