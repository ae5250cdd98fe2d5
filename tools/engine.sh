# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For other scripts: a container engine, the one that answers, else one of their own that ends with them. It may be used
# once in a script, which names what it is (the argument of engine) in what is said about it.

engine_dir=
engine_pid=
engine_bridge=

engine_answers() { # whether an engine answers at a socket
  python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])
s.sendall(b"GET /_ping HTTP/1.0\r\n\r\n"); sys.exit(b" 200 " not in s.recv(64))' "$1" 2>/dev/null
}

engine_end() {
  if [[ -n $engine_pid ]]; then
    kill "$engine_pid" 2>/dev/null && wait "$engine_pid" || true
  fi
  if [[ -n $engine_bridge ]]; then ip link delete "$engine_bridge" || true; fi
  if [[ -n $engine_dir ]]; then rm -rf "$engine_dir"; fi
  engine_pid= engine_dir= engine_bridge=
}

engine() { # sees that DOCKER_HOST, or what is used without it, is an engine, where one can be had
  if [[ -n ${DOCKER_HOST:-} || $(id -u) != 0 ]] || ! command -v dockerd >/dev/null || engine_answers /var/run/docker.sock; then
    return
  fi
  trap engine_end EXIT
  engine_dir=$(mktemp -d /tmp/berth-engine.XXXXXX)
  # The network namespaces of containers outlive an engine that is killed, and answer at their addresses on the bridge that
  # the next engine finds. So this one gets a bridge of its own, with addresses that are set aside for tests (RFC 2544).
  engine_bridge=berth$$
  ip link add name "$engine_bridge" type bridge
  ip address add "198.18.$(($$ % 256)).1/24" dev "$engine_bridge"
  dockerd --data-root "$engine_dir/root" --exec-root "$engine_dir/exec" --pidfile "$engine_dir/pid" -H "unix://$engine_dir/sock" \
    --bridge "$engine_bridge" >"$engine_dir/log" 2>&1 &
  engine_pid=$!
  until engine_answers "$engine_dir/sock"; do
    if ! kill -0 "$engine_pid" 2>/dev/null || ((SECONDS > 60)); then
      echo "$1: no container engine could be started; its last words:" >&2
      tail -n 3 "$engine_dir/log" >&2
      engine_end
      return
    fi
    sleep 0.1
  done
  export DOCKER_HOST=unix://$engine_dir/sock
}
