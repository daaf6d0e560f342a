#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds everything and runs every test that needs no GPU, except those labelled `long`; then again
# under AddressSanitizer and UBSan, the threaded parts under ThreadSanitizer, and the fuzz targets.
# Installs the packages it lacks (Debian 12).
#   sh cmake/test.sh           all of it, as CI does
#   sh cmake/test.sh --quick   the release build and its tests alone
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
. "$root/cmake/setup.sh"
quick=false
case "$#:${1-}" in
  0:) ;;
  1:--quick) quick=true ;;
  *) fail 'usage: sh cmake/test.sh [--quick]' ;;
esac

fixed_addresses=
# run_tests FOLDER [CTEST ARGUMENT...]
run_tests() {
  folder=$1
  shift
  # shellcheck disable=SC2086  # empty, or a command and its arguments
  $fixed_addresses ctest --test-dir "$root/build/$folder" --output-on-failure --no-tests=error -j "$jobs" "$@"
}

began=$(date +%s)
elapsed() { echo "$(($(date +%s) - began)) s"; }

install_packages build test
# With them no language of abi/examples has a reason to be skipped.
if is_debian_12; then
  CUA_ALL_CLIENTS=1
  export CUA_ALL_CLIENTS
fi

say 'Release: build and test'
configure_release -DBUILD_TESTING=ON
cmake --build "$root/build/release" -j "$jobs"
run_tests release --label-exclude '^(long|gpu)$'
say "Release: passed after $(elapsed)"
if $quick; then exit 0; fi

# Lighter optimisation and debug information than the presets': it compiles in half the time.
light='-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1'

say 'AddressSanitizer and UBSan: build and test'
(cd "$root" && cmake --preset asan -DCUA_WERROR=ON "$light")
cmake --build "$root/build/asan" -j "$jobs"
run_tests asan --label-exclude '^(long|gpu)$'
say "AddressSanitizer and UBSan: passed after $(elapsed)"

say 'ThreadSanitizer: build and test what has threads'
(cd "$root" && cmake --preset tsan -DCUA_WERROR=ON "$light")
cmake --build "$root/build/tsan" -j "$jobs" --target threaded_tests
# ThreadSanitizer wants its address ranges free; where it may, setarch turns randomisation off.
fixed_addresses=
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses="setarch $(uname -m) -R"; fi
run_tests tsan --label-regex '^threads$'
fixed_addresses=
say "ThreadSanitizer: passed after $(elapsed)"

say 'Fuzz targets'
(cd "$root" && cmake --preset fuzz "$light")
cmake --build "$root/build/fuzz" -j "$jobs" --target fuzzers
run_tests fuzz --label-regex '^fuzz$'
say "All passed after $(elapsed)"
