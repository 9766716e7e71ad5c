#!/usr/bin/env python3
"""Adds up the JUnit files that ctest wrote into a folder and prints `N passed, N failed, N skipped` as the last line.

A test that could not be started counts as failed. Exit status 1 when one failed or none ran.

usage: test_summary.py FOLDER
"""
import pathlib
import sys
import xml.etree.ElementTree


def outcome(case):
    status = case.get("status")
    if status == "disabled":
        return "skipped"
    if status == "run":
        return "passed"
    skipped = case.find("skipped")
    if status == "notrun" and skipped is not None and skipped.get("message", "").startswith(("SKIP_", "Skip")):
        return "skipped"
    return "failed"


def main(folder):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sorted(pathlib.Path(folder).glob("*.xml")):
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            result = outcome(case)
            counts[result] += 1
            if result != "passed":
                print(f"{result}: {path.stem}: {case.get('name')}")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
