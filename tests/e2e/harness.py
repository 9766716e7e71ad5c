"""Runs the built `tensorwire` for the end-to-end tests and reads what it says.

TENSORWIRE_BIN names the program. Every run has a wall-clock bound; nothing outlives its test.
"""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ.get("TENSORWIRE_BIN", "build/release/bin/tensorwire")
QUICK = ["--tokens", "1", "--verify-tokens", "1", "--layers", "4", "--hidden", "8192", "--gap-us", "0"]


def environment(**extra):
    """The test's own environment without a launcher's or our variables, plus `extra`."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("TENSORWIRE_", "OMPI_", "SLURM_", "PMIX_"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        keep.pop(name, None)
    return {**keep, **{k: str(v) for k, v in extra.items()}}


class Result:
    def __init__(self, completed, seconds, report):
        self.code, self.out, self.err = completed.returncode, completed.stdout, completed.stderr
        self.seconds, self.report = seconds, report

    def __repr__(self):
        return f"exit {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def run(*arguments, timeout=60, env=None):
    started = time.monotonic()
    done = subprocess.run([PROGRAM, *map(str, arguments)], env=env or environment(), text=True, capture_output=True,
                          timeout=timeout, stdin=subprocess.DEVNULL)
    return Result(done, time.monotonic() - started, None)


def decode(*arguments, timeout=90, env=None):
    """`tensorwire bench decode ARGUMENTS --json ...`; the report is None when none was written."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "report.json")
        result = run("bench", "decode", "--json", path, *arguments, timeout=timeout, env=env)
        if path.exists():
            result.report = json.loads(path.read_text())
        return result


def rank_processes(parent):
    """The rank processes that `parent` (a Popen of a local run) started: {rank: pid}."""
    ranks = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or f"PPid:\t{parent.pid}\n" not in entry.joinpath("status").read_text():
                continue
            variables = entry.joinpath("environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(b"RANK="):
                ranks[int(variable[5:])] = int(entry.name)
    return ranks


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {seconds} s")


class Background:
    """A decode run that goes on while the test acts on its ranks."""

    def __init__(self, ranks, *arguments, env=None):
        self.folder = tempfile.TemporaryDirectory()
        self.marker = pathlib.Path(self.folder.name, "started")
        self.process = subprocess.Popen(
            [PROGRAM, "bench", "decode", "--ranks", str(ranks), "--started-file", self.marker, *map(str, arguments)],
            env=env or environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        wait_for(lambda: self.marker.exists() or self.process.poll() is not None, 60, "the first timed token")
        self.ranks = rank_processes(self.process)

    def signal(self, rank, number):
        os.kill(self.ranks[rank], number)

    def finish(self, timeout):
        """(exit code, stdout, stderr, seconds from now to the end)"""
        started = time.monotonic()
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err, time.monotonic() - started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.ranks.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()


class EndToEnd(unittest.TestCase):
    def assert_one_clear_line(self, result, *words):
        """A failed run: non-zero, and one line on stderr that has every word; no stack of follow-up noise."""
        self.assertNotEqual(result.code, 0, result)
        lines = [line for line in result.err.splitlines() if all(word in line for word in words)]
        self.assertTrue(lines, f"no line with {words} in\n{result}")

    def assert_verified(self, result, ranks=None):
        self.assertEqual(result.code, 0, result)
        self.assertIsNotNone(result.report, result)
        self.assertTrue(result.report["verified"], result.report)
        self.assertEqual(result.report["mismatches"], 0)
        if ranks is not None:
            self.assertEqual(result.report["ranks"], ranks)

    def path(self, result, name):
        return next(entry for entry in result.report["results"] if entry["path"] == name)
