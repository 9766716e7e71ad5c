"""Makes a CUDA wheel of PyTorch importable where CUDA's libraries are not installed.

PyPI has PyTorch for Linux with CUDA only; the libraries that it links weigh 2.7 GB and do nothing without a GPU. This puts one
small library in the place of each: it has every name that PyTorch's libraries look for, and each function answers 100,
which is cudaErrorNoDevice.

usage: absent_cuda.py FOLDER-OF-PYTORCH'S-LIBRARIES
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ABSENT = re.compile(r"lib(cu|nccl|nvrtc|nvshmem)")
SYMBOL = re.compile(r" (UND|\d+) ((?:__)?(?:cu|nccl|nvrtc|nvshmem)\w*)")
BODIES = ["long no_device(void) { return 100; }\n", 'const char* in_words(void) { return "no CUDA"; }\n']
IN_WORDS = re.compile(r"Error(String|Name)$")


def run(*command, text=None):
    return subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout


def readelf(option, path):
    return run("readelf", "-W", option, path)


def versions(path):
    """{library: names of the symbol versions that `path` wants of it}."""
    wanted, library = {}, None
    for kind, name in re.findall(r"\b(File|Name): (\S+)", readelf("-V", path)):
        if kind == "File":
            library = name
        elif library:
            wanted.setdefault(library, set()).add(name)
    return wanted


def make(folder):
    looked_for, present, absent = set(), set(), {}
    for path in sorted(folder.glob("*.so*")):
        if path.is_symlink() or ABSENT.match(path.name):
            continue
        for place, name in SYMBOL.findall(readelf("--dyn-syms", path)):
            (looked_for if place == "UND" else present).add(name)
        for library in re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", path)):
            absent.setdefault(library, set())
        for library, names in versions(path).items():
            absent.setdefault(library, set()).update(names)
    functions = [f'long {name}(void) __attribute__((alias("{"in_words" if IN_WORDS.search(name) else "no_device"}")));\n'
                 for name in sorted(looked_for - present)]
    with tempfile.TemporaryDirectory() as scratch:
        object_file, script = pathlib.Path(scratch, "absent.o"), pathlib.Path(scratch, "absent.map")
        run("cc", "-w", "-c", "-fPIC", "-x", "c", "-", "-o", object_file, text=''.join(BODIES + functions))
        for library in filter(ABSENT.match, absent):
            script.write_text("".join(f"{version} {{ global: *; }};\n" for version in sorted(absent[library]) or ["ABSENT"]))
            run("cc", "-shared", "-nostdlib", f"-Wl,-soname,{library}", f"-Wl,--version-script={script}", object_file,
                "-o", folder / library)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
