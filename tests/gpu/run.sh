#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every test that needs a GPU, then the benchmark, in under 9 minutes; ends with a short table.
#   sh tests/gpu/run.sh [BUILD]    BUILD: a build folder with the binaries; made where none is given
# Needs a GPU of compute capability 8.0 or newer, and Python with torch and transformers for the gate
# (skipped, and said so, without them); nvcc, CMake and the packages of cmake/packages.txt to build.
# OUT: a folder for the logs and the benchmark's JSON; by default BUILD/gpu.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
build=${1:-$root/build/release}
if [ $# -eq 0 ]; then
  cmake --preset release -S "$root" && cmake --build "$build" || exit 1
fi
build=$(CDPATH='' cd -- "$build" && pwd -P)
out=${OUT:-$build/gpu}
bin=$build/bin
lib=$bin/libcua.so
requests=$root/tests/data/requests/systemone-samples.jsonl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
table=$work/table
status=0
export PYTHONUNBUFFERED=1 HF_HUB_DISABLE_PROGRESS_BARS=1 TRANSFORMERS_VERBOSITY=error

# step NAME COMMAND...: runs it, keeps its log, notes what came of it and its last line.
step() {
  name=$1
  shift
  began=$(date +%s)
  "$@" >"$out/$name.log" 2>&1
  rc=$?
  verdict=ok
  [ $rc -eq 0 ] || { verdict="FAILED ($rc)"; status=1; tail -n 25 "$out/$name.log"; }
  printf '%-16s %-12s %4s s  %s\n' "$name" "$verdict" "$(($(date +%s) - began))" \
    "$(grep -v '^$' "$out/$name.log" | tail -n 1 | cut -c1-90)" >>"$table"
}

cmake -E chdir "$work" cmake -E tar xf "$root/tests/data/tokenizer.tar.xz"
step model-wide "$bin/cua-export" synthetic --shape wide --seed 1 --tokenizer "$work/tokenizer" --out "$work/wide"
step model-4b "$bin/cua-export" synthetic --shape 4b --seed 1 --tokenizer "$work/tokenizer" --out "$work/4b"
cmake -E chdir "$work" cmake -E tar xf "$root/tests/data/golden.tar.xz"
step operations "$build/tests/operations_test"
step forward "$build/tests/cuda_forward_test"
step golden "$build/tests/golden_gpu_test" "$work"
step engine python3 "$root/tests/gpu/engine_test.py" --lib "$lib" --model "$work/wide"
step faults python3 "$root/tests/gpu/fault_test.py" --lib "$lib" --model "$work/wide" \
  --shim "$build/tests/libcua_fault_shim.so"
step clients python3 -B "$root/tests/abi/examples.py" --library "$lib" --model "$work/wide" \
  --other "$build/tests/libcua_fake.so" --tokenizer "$work/tokenizer"
step worker python3 "$root/tests/gpu/worker_test.py" --server "$bin/cua-server" --lib "$lib" \
  --cpu-lib "$bin/libcua_cpu.so" --shim "$build/tests/libcua_fault_shim.so" --model "$work/wide" --requests "$requests"
step contract python3 "$root/tests/http/contract.py" --server "$bin/cua-server" --lib "$lib" --model "$work/wide" \
  --model-id synthetic/wide-1 --requests "$requests"
for graph in 0 1 bucket; do
  step company-$graph python3 "$root/tests/http/company.py" --server "$bin/cua-server" --lib "$lib" --model "$work/wide" \
    --requests "$requests" --graph $graph
done
if command -v compute-sanitizer >/dev/null 2>&1; then
  step memcheck compute-sanitizer --tool memcheck --leak-check full --error-exitcode 9 \
    "$build/tests/cuda_forward_test" "[short]"
  # Of our own kernels: racecheck cannot follow cuBLASLt's.
  step racecheck compute-sanitizer --tool racecheck --error-exitcode 9 "$build/tests/operations_test" "[own]"
fi
if python3 -c 'import torch, transformers' 2>/dev/null; then
  step gate python3 "$root/tests/gpu/gate.py" --lib "$lib" --model "$work/4b" --requests "$requests"
else
  echo 'gate             skipped: no torch or transformers' >>"$table"
fi
for graph in off exact bucket; do
  [ $graph = exact ] && split=--split || split=
  step bench-$graph "$bin/cua-bench" forward --model "$work/4b" --graph $graph --json "$out/forward-$graph.json" \
    --tokens 64,153,218,512,1024,2048,4096,8192,16384 $split
  cat "$out/bench-$graph.log"
done
rm -f "$out/floor.json"
step floor "$bin/cua-bench" floor --model "$work/4b" --json "$out/floor.json" \
  --tokens 64,153,218,512,1024,2048,4096,8192,16384
cat "$out/floor.log"
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader)
step page python3 "$root/tests/gpu/forward_page.py" --off "$out/forward-off.json" \
  --exact "$out/forward-exact.json" --bucket "$out/forward-bucket.json" --floor "$out/floor.json" \
  --driver "$driver" --out "$out/cuda_forward.md"
echo
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
cat "$table"
exit $status
