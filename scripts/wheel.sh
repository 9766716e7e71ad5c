#!/usr/bin/env bash
# Makes the Python wheel from a finished release build: python/tensorwire with the libraries in tensorwire/lib, laid out as the
# tarball has them. Hatchling comes from PyPI. The same build gives the same bytes.
# usage: wheel.sh BUILD-FOLDER OUTPUT-FOLDER
set -euo pipefail

readonly build=$1 output=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "$build" --prefix "$stage/installed" --strip >/dev/null
mkdir "$stage/wheel"
cp -R python/. CMakeLists.txt LICENSE README.md "$stage/wheel/"
cp -R "$stage/installed/share/doc/tensorwire/third-party" "$stage/wheel/"
find "$stage/wheel" -name __pycache__ -prune -exec rm -rf {} +

# A wheel holds no links: each library once, under the name that is looked for. A library that needs the drop-in and has nothing
# of its own stands for the link libibverbs.so.
readonly from=$stage/installed/lib to=$stage/wheel/tensorwire/lib
mkdir -p "$to/tensorwire"
cp "$from/libtensorwire.so.0" "$to/"
cp "$from/tensorwire/libibverbs.so.1" "$to/tensorwire/"
strip -o "$to/tensorwire/libibverbs.so" "$build/lib/wheel/libibverbs.so"
cp -R "$from/tensorwire/bundled" "$from/tensorwire/nccl" "$to/tensorwire/"
chmod -R u=rwX,go=rX "$stage/wheel"

mkdir -p "$output" "$stage/out"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)} \
  python3 -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir "$stage/out" "$stage/wheel"
for wheel in "$stage"/out/*.whl; do
  mv "$wheel" "$output/"
  printf '%s\n' "$output/${wheel##*/}"
done
