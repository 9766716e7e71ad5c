"""The project's own files, for the lint scripts: everything below a root but build output, inputs of
fuzzers, and what version control hides."""
import os
import pathlib

HIDDEN = {".git", ".venv", "build", "dist", "out", "__pycache__", "corpus"}
CODE = {".hpp", ".cpp", ".h", ".c", ".cu", ".cuh"}
TEXT = CODE | {".py", ".sh", ".md", ".txt", ".cmake", ".json", ".yml", ".toml", ""}


def files(root, suffixes):
    """Paths below `root` with one of `suffixes`, relative to it, in a stable order."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in HIDDEN)
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            if path.suffix in suffixes and path.is_file():
                found.append(path.relative_to(root))
    return found


def report(findings):
    """Prints one line per finding and gives the exit status."""
    for finding in findings:
        print(finding)
    return 1 if findings else 0
