"""Compares the symbols that the drop-in library exports with its map, and with what installed libraries import from it.

usage: check_exports.py LIBRARY SOURCE_FOLDER
"""
import pathlib
import re
import subprocess
import sys

PRIVATE_NODES = ("34", "57", "59", "64", "65")
# Libraries that programs on a machine with rdma-core pull in; each imports from libibverbs.so.1.
CONSUMERS = ("libmlx5.so.1", "libmlx4.so.1", "libefa.so.1", "libmana.so.1", "libhns.so.1", "librdmacm.so.1", "libibverbs/*.so")
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def symbols(library, selection):
    """(name, version node) of dynamic symbols."""
    text = subprocess.run(["nm", "-D", "--with-symbol-versions", selection, str(library)], text=True, check=True,
                          capture_output=True, timeout=60).stdout
    for line in text.splitlines():
        *_, kind, symbol = line.split()
        name, _, version = symbol.partition("@")
        if kind != "A":  # the nodes themselves
            yield name, version.lstrip("@")


def expected(folder):
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(folder, "abi.map").read_text(), flags=re.DOTALL)
    wanted = set()
    for node, body in re.findall(r"(\w[\w.]*)\s*\{(.*?)\}", text, flags=re.DOTALL):
        names = body.split("local:")[0].replace("global:", "")
        wanted |= {(name, node) for name in re.findall(r"[\w]+", names)}
    private = re.findall(r"^TENSORWIRE_PRIVATE_\w+\((\w+)\)", pathlib.Path(folder, "private_abi.inc").read_text(), re.MULTILINE)
    for number in PRIVATE_NODES:
        wanted |= {(name, f"IBVERBS_PRIVATE_{number}") for name in [*private, f"verbs_register_driver_{number}"]}
    return wanted


def main(library, folder):
    there, wanted = set(symbols(library, "--defined-only")), expected(folder)
    complaints = [f"exported but in no map: {name}@{node}" for name, node in sorted(there - wanted)]
    complaints += [f"in the map but not exported: {name}@{node}" for name, node in sorted(wanted - there)]
    checked = 0
    for consumer in (path for place in FOLDERS for pattern in CONSUMERS for path in pathlib.Path(place).glob(pattern)):
        imports = {pair for pair in symbols(consumer, "--undefined-only") if pair[1].startswith("IBVERBS_")}
        complaints += [f"{consumer.name} imports {name}@{node}" for name, node in sorted(imports - there)]
        checked += 1
    print(*complaints, sep="\n")
    print(f"{len(there)} symbols, {checked} importing libraries checked, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
