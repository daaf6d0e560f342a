#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the worker and the CPU library, makes a small random model, starts the worker, asks it one
# question, prints request and answer, and stops it. Installs the packages it lacks (Debian 12).
#   sh cmake/demo.sh
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
. "$root/cmake/setup.sh"
demo=$root/build/demo
bin=$root/build/release/bin
server=

# alive: whether the worker still runs.
alive() { [ -n "$server" ] && kill -0 "$server" 2>/dev/null; }

# wait_gone SECONDS: waits until the worker has ended; fails if it has not.
wait_gone() {
  tenths=$(($1 * 10))
  while alive; do
    [ "$tenths" -gt 0 ] || return 1
    tenths=$((tenths - 1))
    sleep 0.1
  done
}

cleanup() {
  status=$?
  trap - EXIT
  if alive; then
    kill -TERM "$server" 2>/dev/null || :
    wait_gone 5 || kill -KILL "$server" 2>/dev/null || :
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

server_failed() {
  echo "The worker's log:" >&2
  cat "$demo/server.log" >&2
  fail "$1"
}

install_packages build
# Tests stay configured where they are and can be; three targets are built either way.
if [ -f "$root/build/release/CMakeCache.txt" ] && [ -z "$(missing_packages test)" ]; then
  set --
else
  set -- -DBUILD_TESTING=OFF
fi
say 'Building'
configure_release "$@"
cmake --build "$root/build/release" -j "$jobs" --target cua-server cua-export cua_cpu

say 'Making a small random model'
rm -rf "$demo"
mkdir -p "$demo"
(cd "$demo" && cmake -E tar xf "$root/tests/data/tokenizer.tar.xz")
"$bin/cua-export" synthetic --shape tiny --seed 1 --tokenizer "$demo/tokenizer" --out "$demo/model"

say 'Starting the worker on the CPU library'
unset CUA_S1_MODEL CUA_S1_HOST CUA_S1_PORT CUA_S1_CUDA_LIB CUA_S1_GRAPH
"$bin/cua-server" --device cpu --model "$demo/model" --host 127.0.0.1 --port 0 \
  >"$demo/server.out" 2>"$demo/server.log" </dev/null &
server=$!
tenths=300
address=
while [ -z "$address" ]; do
  alive || server_failed 'the worker ended before it listened'
  [ "$tenths" -gt 0 ] || server_failed 'the worker does not listen after 30 s'
  tenths=$((tenths - 1))
  sleep 0.1
  address=$(sed -n 's/^listening on \([^ ]*:[0-9][0-9]*\)$/\1/p' "$demo/server.out")
done
echo "http://$address"

# The first sample is the fixture; its "request" is the body.
sed -n '1s/^.*"request": \(.*\), "prompt_tokens": {.*$/\1/p' \
  "$root/tests/data/requests/systemone-samples.jsonl" >"$demo/request.json"
[ -s "$demo/request.json" ] || fail 'no request found in tests/data/requests/systemone-samples.jsonl'
say 'Request: POST /v1/systemone'
cat "$demo/request.json"
code=$(curl --silent --show-error --noproxy '*' --max-time 30 --output "$demo/answer.json" \
  --write-out '%{http_code}' --header 'Content-Type: application/json' \
  --data-binary "@$demo/request.json" "http://$address/v1/systemone") ||
  server_failed 'the request failed'
say "Answer: $code"
cat "$demo/answer.json"
echo
[ "$code" = 200 ] || server_failed "the answer is $code, not 200"
for part in '"answers":{"pick":{"type":"choice","choice":"' '"usage":{"input_tokens":218,"output_tokens":0}'; do
  grep -qF "$part" "$demo/answer.json" || server_failed "the answer lacks $part"
done

say 'Stopping the worker'
kill -TERM "$server"
wait_gone 30 || server_failed 'the worker does not stop on SIGTERM'
status=0
wait "$server" || status=$?
server=
[ "$status" = 0 ] || server_failed "the worker ended with status $status"
say 'Done. The choice of a random model means nothing; README.md says how to get the real one.'
