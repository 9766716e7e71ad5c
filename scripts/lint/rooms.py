#!/usr/bin/env python3
"""Checks the house rule: who may include whom (docs/architecture.md), and that a source includes its own header first.

A room is a folder of src/. It may include the rooms that ROOMS names for it and those that these may use in turn, as
"room/file.hpp" and in no other form. Some libraries, and the clock, belong to certain places only.

usage: rooms.py [ROOT]
"""
import pathlib
import re
import sys

import tree

# Room: the rooms directly below it. Bottom up; a room may only name rooms above it in this table, so there are no circles.
ROOMS = {
    "base": [],
    "wire": ["base"],
    "transport": ["wire"],
    "softhca": ["transport"],
    "ibverbs": ["softhca"],
    "verbs": ["base"],
    "bootstrap": ["base"],
    "collective": ["base"],
    "cuda": ["collective"],
    "comm": ["verbs", "bootstrap", "collective", "cuda"],
    "nccl": ["comm"],
    "fabric": ["transport", "collective"],
    "inspect": ["wire"],
    "host": ["base"],
    "cli": ["ibverbs", "comm", "fabric", "inspect", "host"],
}

# Single headers of a room that others may include as well: a contract in plain C, without the room behind it.
OPEN_HEADERS = {"ibverbs/direct.h": ["verbs"]}

# (what is included, why it is kept to these places, the places as patterns of src/-relative paths)
KEPT = [
    (re.compile(r"<spdlog/"), "spdlog is seen by base/log.cpp alone", re.compile(r"base/log\.cpp$")),
    (re.compile(r"<fmt/"), "fmt is for source files, not for headers", re.compile(r".*\.cpp$")),
    (re.compile(r'"base/clock\.hpp"'), "this room is given the time and never reads a clock",
     re.compile(r"(?!(wire|transport|collective|fabric)/)")),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def reach(room):
    """`room` and every room below it."""
    seen = {room}
    for below in ROOMS[room]:
        seen |= reach(below)
    return seen


def table_errors():
    names = list(ROOMS)
    return [
        f"scripts/lint/rooms.py: {room} may not use {used}, which is not above it in the table"
        for room, uses in ROOMS.items() for used in uses if used not in names[: names.index(room)]
    ]


def check_include(root, path, number, bracket, target):
    """The findings for one #include of src/`path`."""
    room = path.parts[0]
    where = f"src/{path}:{number}"
    line = f"<{target}>" if bracket == "<" else f'"{target}"'
    found = [f"{where}: {line}: {why}" for what, why, place in KEPT if what.match(line) and not place.match(str(path))]
    if bracket == "<":
        return found
    other = target.split("/")[0]
    if ".." in target.split("/") or other not in ROOMS or "/" not in target:
        if not (root / "include" / target).exists():
            found.append(f'{where}: {line}: write it as "room/file.hpp"')
    elif not (root / "src" / target).exists():
        found.append(f"{where}: {line}: there is no such file")
    elif other not in reach(room) and room not in OPEN_HEADERS.get(target, []):
        found.append(f"{where}: {line}: {room} may not use {other}; it may use {', '.join(sorted(reach(room)))}")
    return found


def check_own_header(root, path, targets):
    """A source begins with its own header, which shows that this one leans on nothing before it."""
    own = path.with_suffix(".hpp")
    if path.suffix != ".cpp" or not (root / "src" / own).exists() or targets[:1] == [str(own)]:
        return []
    return [f'src/{path}: begin with #include "{own}": nothing else shows that this header stands on its own']


def check_links(root, path):
    """The findings for the rooms that a room's CMakeLists.txt links."""
    room = path.parts[0]
    text = (root / "src" / path).read_text()
    linked = set(re.findall(r"\btw_(\w+)\b", text)) & set(ROOMS)
    for uses in re.findall(r"USES((?:\s+[a-z]\w*)+)", text):
        linked |= set(uses.split()) & set(ROOMS)
    return [f"src/{path}: {room} may not link {other}" for other in sorted(linked - reach(room))]


def check(root):
    findings = table_errors()
    if findings:
        return findings
    for path in tree.files(root / "src", tree.CODE | {".txt"}):
        if len(path.parts) < 2:
            continue
        if path.parts[0] not in ROOMS:
            findings.append(f"src/{path}: {path.parts[0]} is not a room")
        elif path.name == "CMakeLists.txt":
            findings += check_links(root, path)
        elif path.suffix in tree.CODE:
            includes = [(number, *match.groups())
                        for number, text in enumerate((root / "src" / path).read_text().splitlines(), 1)
                        if (match := INCLUDE.match(text))]
            findings += check_own_header(root, path, [target for _, _, target in includes])
            for include in includes:
                findings += check_include(root, path, *include)
    return findings


if __name__ == "__main__":
    sys.exit(tree.report(check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))))
