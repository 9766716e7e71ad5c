#!/usr/bin/env bash
# Makes a folder that runs the comparison on another machine: the programs, the user-space HCA, and OpenMPI and gloo as they
# are installed here, with every library but the C library's own. There it needs python3 and a C library as new as ours.
# usage: bundle.sh BUILD-FOLDER OUTPUT-FOLDER
set -euo pipefail

readonly build=$1 output=$2
here=$(cd "$(dirname "$0")" && pwd)
# Belongs to the C library, and must be that of the machine it runs on.
readonly own='/(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libutil|libnss_[a-z]*)[-.]'

# What ldd names on standard input.
copy_named() { # FOLDER
  awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u | grep -Ev "$own" |
    while read -r library; do cp -Lu "$library" "$1/"; done
}

mkdir -p "$output/bin" "$output/lib"
cp "$here"/*.py "$output/"
for program in "$build"/bin/versus_*; do
  install -m 755 "$program" "$output/bin/"
  strip "$output/bin/$(basename "$program")"
done
cp -r "$build/lib/tensorwire" "$output/lib/"
strip --strip-unneeded "$output"/lib/tensorwire/libibverbs.so.1

if [[ -x $output/bin/versus_gloo ]]; then
  mkdir -p "$output/gloo/lib"
  ldd "$output/bin/versus_gloo" | copy_named "$output/gloo/lib"
fi

if [[ -x $output/bin/versus_openmpi ]]; then
  mpi=$output/openmpi
  path_of() { ompi_info --path "$1" --parsable | cut -d: -f3; }
  # Where OPAL_PREFIX says that they are.
  for folder in pkglibdir pkgdatadir; do
    place=$mpi/$(realpath -m --relative-to="$(path_of prefix)" "$(path_of $folder)")
    mkdir -p "$place"
    cp -rL "$(path_of $folder)/." "$place/"
  done
  mkdir -p "$mpi/bin" "$mpi/lib"
  cp -L "$(command -v mpirun)" "$(command -v orted)" "$mpi/bin/"
  find "$mpi" -name '*.so' -print0 | xargs -0 ldd "$output/bin/versus_openmpi" "$mpi"/bin/* 2>/dev/null | copy_named "$mpi/lib"
fi
du -sh "$output"
