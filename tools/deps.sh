#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests use and the machine lacks. Tests whose tool is missing say so and skip.
set -euo pipefail
missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need newuidmap uidmap
need git git
need bash bash
need busybox busybox-static
need python3 python3-minimal
need dockerd docker.io
compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || missing+=(postgresql)
need iptables iptables
need ip iproute2
if ((${#missing[@]} == 0)); then exit 0; fi
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "tests that need these packages will be skipped: ${missing[*]}" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
