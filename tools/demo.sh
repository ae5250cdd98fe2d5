#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the renewal-packet example: with the real model when there is a key, else with the written transcript.
set -euo pipefail
cd "$(dirname "$0")/.."
args=()
if [[ -n ${OPENAI_API_KEY:-} ]]; then
  echo "demo: asking the real model (OPENAI_API_KEY is set)"
else
  echo "demo: playing a written transcript instead of a model (set OPENAI_API_KEY to ask a real one); the commands really run"
  args=(--replay examples/renewal-packet/transcript.jsonl)
fi
exec bin/berth run "${args[@]}" examples/renewal-packet
