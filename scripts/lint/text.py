#!/usr/bin/env python3
"""Checks what no compiler sees: left-over marks, files that grew past one idea, headers that do not say what they are.

A source file of more than LONGEST lines must be listed in long_files.txt beside this script, with the reason.

usage: text.py [ROOT]
"""
import pathlib
import re
import sys

import tree

LONGEST = 500
LEFT_OVER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]) + r")\b")


def listed_as_long(root):
    """Path: reason, from lines `path reason...`."""
    path = root / "scripts/lint/long_files.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split()[0]: line.partition(" ")[2].strip() for line in lines if line.strip() and not line.startswith("#")}


def check_file(root, path, long_files):
    findings = []
    lines = (root / path).read_text(errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        match = LEFT_OVER.search(line)
        if match:
            findings.append(f"{path}:{number}: {match.group()} is left over: do it or write down why not")
        if line != line.rstrip() and path.suffix != ".md":
            findings.append(f"{path}:{number}: blanks at the end of the line")
    if path.suffix in tree.CODE | {".py"}:
        if len(lines) > LONGEST and not long_files.get(str(path)):
            findings.append(f"{path}: {len(lines)} lines: split it, or list it with a reason in scripts/lint/long_files.txt")
    if path.suffix in {".hpp", ".h"} and not (lines and lines[0].startswith(("//", "/*"))):
        findings.append(f"{path}:1: a header opens by saying what it is and who owns what")
    if path.suffix == ".hpp" and "#pragma once" not in lines:
        findings.append(f"{path}: no #pragma once")
    return findings


def check(root):
    long_files = listed_as_long(root)
    findings = [f"scripts/lint/long_files.txt: {path} has no reason" for path, reason in long_files.items() if not reason]
    findings += [f"scripts/lint/long_files.txt: {path} does not exist" for path in long_files if not (root / path).exists()]
    for path in tree.files(root, tree.TEXT):
        findings += check_file(root, path, long_files)
    return findings


if __name__ == "__main__":
    sys.exit(tree.report(check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))))
