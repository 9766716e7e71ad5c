#!/usr/bin/env bash
# Makes the relocatable tarball from a finished release build. The same build gives the same bytes.
# With --gpu, tests and benchmarks of GPUs travel along, and `dev` runs them.
# usage: package.sh BUILD-FOLDER OUTPUT-FOLDER [--gpu]
set -euo pipefail

readonly build=$1 output=$2
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=tensorwire-$version-linux-$(uname -m)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
if [[ ${3:-} == --gpu ]]; then name+=-gpu; fi
cmake --install "$build" --prefix "$stage/$name" --strip >/dev/null
if [[ ${3:-} == --gpu ]]; then
  for program in tests/gpu/test_gpu bin/gpu_{litmus,allreduce,decode,rdma,between_hosts,round_trip}; do
    strip -o "$stage/$name/bin/${program##*/}" "$build/$program"
  done
  cp scripts/gpu.sh "$stage/$name/dev"
  cp scripts/gpu_hosts.sh bench/gpu/{nccl,torch}_table.py "$stage/$name/bin/"
  mkdir "$stage/$name/python"
  cp -r python/tensorwire "$stage/$name/python/"
fi
chmod -R u=rwX,go=rX "$stage/$name"

mkdir -p "$output"
tar --create --directory "$stage" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner "$name" |
  gzip -9 --no-name >"$output/$name.tar.gz"
printf '%s\n' "$output/$name.tar.gz"
