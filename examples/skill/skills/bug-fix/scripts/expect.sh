#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# expect.sh WANT COMMAND [ARG...]: runs a command and compares what it prints.
want=$1
shift
got=$("$@")
if [ "$got" = "$want" ]; then
  echo "as expected: $got"
else
  echo "expected $want, got $got"
  exit 1
fi
