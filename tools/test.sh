#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests, with the guest in place so that the drivers under test carry it, and with a container engine: the one
# that answers, else one of its own that ends with the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

answers() { # whether an engine answers at a socket
  python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])
s.sendall(b"GET /_ping HTTP/1.0\r\n\r\n"); sys.exit(b" 200 " not in s.recv(64))' "$1" 2>/dev/null
}

dir=
engine=
end() {
  if [[ -n $engine ]]; then
    kill "$engine" 2>/dev/null && wait "$engine" || true
  fi
  if [[ -n $dir ]]; then rm -rf "$dir"; fi
}
trap end EXIT

if [[ -z ${DOCKER_HOST:-} && $(id -u) == 0 ]] && command -v dockerd >/dev/null && ! answers /var/run/docker.sock; then
  dir=$(mktemp -d /tmp/berth-engine.XXXXXX)
  dockerd --data-root "$dir/root" --exec-root "$dir/exec" --pidfile "$dir/pid" -H "unix://$dir/sock" >"$dir/log" 2>&1 &
  engine=$!
  until answers "$dir/sock"; do
    if ! kill -0 "$engine" 2>/dev/null || ((SECONDS > 60)); then
      echo "tests: no container engine could be started; its last words:" >&2
      tail -n 3 "$dir/log" >&2
      end
      engine= dir=
      break
    fi
    sleep 0.1
  done
  if [[ -n $engine ]]; then export DOCKER_HOST=unix://$dir/sock; fi
fi

make --no-print-directory guest
go vet ./...
go test -timeout 8m "$@" ./...
