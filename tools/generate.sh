#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Regenerates sdk/proto and plugins/e2b/internal/wire from the .proto files. buf comes from npm, pinned; the plugins from tools/go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."
buf=.bin/buf-1.75.0/node_modules/.bin/buf
[[ -x $buf ]] || npm install --silent --no-fund --no-audit --prefix .bin/buf-1.75.0 @bufbuild/buf@1.75.0
"$buf" lint
"$buf" format -w
"$buf" generate
"$buf" format -w plugins/e2b/internal/wire
"$buf" generate plugins/e2b/internal/wire --template plugins/e2b/internal/wire/buf.gen.yaml
go test ./core/config/reference -run TestReferenceIsFresh -update
