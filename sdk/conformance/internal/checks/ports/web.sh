#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One connection of a server: it answers a request with its method, its address and its body, and echoes the short
# messages of a WebSocket.
cr=$(printf '\r') length=0 key=
read -r method address _
while read -r line; do
  line=${line%"$cr"}
  [ -n "$line" ] || break
  case $(echo "$line" | tr A-Z a-z) in
    content-length:*) length=${line#*: };;
    sec-websocket-key:*) key=${line#*: };;
  esac
done
bytes() { dd bs=1 count="$1" 2>/dev/null | od -An -v -tu1; }
if [ -z "$key" ]; then
  text="$method $address "
  [ "$length" -eq 0 ] || text=$text$(dd bs=1 count="$length" 2>/dev/null)
  printf 'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#text} "$text"
  exit
fi
sum=$(printf '%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11' "$key" | sha1sum | cut -c1-40 | sed 's/../\\x&/g')
printf 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n' "$(printf "$sum" | base64)"
while set -- $(bytes 6); [ $# -eq 6 ]; do
  kind=$1 n=$(($2 & 127)) m0=$3 m1=$4 m2=$5 m3=$6 i=0
  out=$(printf '\\%03o\\%03o' "$kind" "$n")
  if [ "$n" -gt 0 ]; then
    for b in $(bytes "$n"); do
      eval "m=\$m$((i % 4))"
      out=$out$(printf '\\%03o' $((b ^ m)))
      i=$((i + 1))
    done
  fi
  printf "$out"
done
