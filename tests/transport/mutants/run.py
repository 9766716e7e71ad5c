#!/usr/bin/env python3
"""Builds each mutant of a table and lets its judge look for it: a fault simulation, or where the table says so unit tests. One
that survives fails the run.

A table is a Python file with SIMULATION and UNIT_TESTS (programs of the build folder), SOURCES (the folder from which its
mutants name their files), SEEDS (CI's) and MUTANTS. Only the mutated file is compiled; the rest of the program is what the judge was linked
from. Needs a build folder that Ninja made, in which both programs are built.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
import types
import zlib

from mutant import Mutant

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RUN_LIMIT_S = 120


def read_table(path: pathlib.Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("table", path)
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    return table


def compile_commands(build: pathlib.Path) -> dict[pathlib.Path, list[str]]:
    """By source file, without its output and input."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        output = words.index("-o")
        del words[output:output + 2]
        words.remove("-c")
        words.remove(entry["file"])
        commands[pathlib.Path(entry["file"])] = [word for word in words if not word.startswith(("-O", "-g"))] + ["-O1", "-w"]
    return commands


def link_command(build: pathlib.Path, program: str) -> list[str]:
    """How this program of the build folder was linked, without its output."""
    target = pathlib.Path(program).name
    listed = subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True)
    linking = [line for line in listed.stdout.splitlines() if f"-o {program} " in line][-1]
    words = [word for word in shlex.split(linking.split("&&")[1])]
    output = words.index("-o")
    del words[output:output + 2]
    return words


def share_of(table: types.ModuleType, parts: int) -> list[Mutant]:
    """Every `parts`-th mutant; which ones, is for the state of the sources to say, so that all of them have their turn while
    these change, and the same tree is always judged by the same."""
    sources = sorted((ROOT / table.SOURCES).glob("*.?pp"))
    turn = zlib.crc32(b"".join(path.read_bytes() for path in sources)) % parts
    return table.MUTANTS[turn::parts]


class Mill:
    def __init__(self, build: pathlib.Path, table: types.ModuleType, table_path: pathlib.Path, seeds: int) -> None:
        self.build = build
        self.table_path = table_path
        self.sources = ROOT / table.SOURCES
        self.seeds = seeds
        self.folder = build / "mutants"
        self.compilers = compile_commands(build)
        self.simulation = link_command(build, table.SIMULATION)
        self.unit_tests = link_command(build, table.UNIT_TESTS)

    def misplaced(self, mutants: list[Mutant]) -> list[str]:
        """Those whose text is not there once: the source was changed, and the table was not."""
        counts = {mutant.name: (self.sources / mutant.file).read_text().count(mutant.old) for mutant in mutants}
        return [f"{name} has its text {count} times; mend {self.table_path}" for name, count in counts.items() if count != 1]

    def make(self, mutant: Mutant) -> pathlib.Path:
        original = (self.sources / mutant.file).resolve()
        text = original.read_text()
        folder = self.folder / mutant.name
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / original.name
        source.write_text(text.replace(mutant.old, mutant.new))
        item = folder / (original.name + ".o")
        self.call([*self.compilers[original], "-c", str(source), "-o", str(item)])
        program = folder / "judge"
        linker = self.unit_tests if mutant.unit_tests else self.simulation
        # Before the libraries, so that the mutated file is found first.
        at = next(i for i, word in enumerate(linker) if word.endswith(".o"))
        self.call([*linker[:at], str(item), *linker[at:], "-Wl,--strip-debug", "-o", str(program)])  # twice as fast
        return program

    def call(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr or done.stdout)

    def judge(self, mutant: Mutant) -> tuple[bool, str]:
        """Whether it was found, and by what."""
        try:
            program = self.make(mutant)
        except RuntimeError as error:
            return False, f"cannot be built: {error}"
        try:
            looking = [f"--gtest_filter={mutant.unit_tests}", "--gtest_brief=1", "--gtest_fail_fast"]
            if not mutant.unit_tests:
                looking = ["--seeds", str(self.seeds), "--no-hits"]
            done = subprocess.run([program, *looking], capture_output=True, text=True, timeout=RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            return True, "it hangs"
        finally:
            program.unlink()
        if done.returncode == 0:
            return False, f"survived {mutant.unit_tests or f'{self.seeds} seeds'}"
        if done.returncode < 0:
            return True, f"it dies of signal {-done.returncode}"
        told = [line for line in done.stdout.splitlines() if not mutant.unit_tests or line.startswith("[  FAILED  ]")]
        return True, told[0] if told else f"exit status {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--table", type=pathlib.Path, default=HERE / "table.py", help="of mutants (default: of the engine)")
    parser.add_argument("--seeds", type=int, help="seeds that a mutant must not survive (default: CI's)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--share", type=int, default=1, metavar="N", help="only every Nth, in turn with the sources' state")
    parser.add_argument("names", nargs="*", help="only these mutants")
    options = parser.parse_args()
    table = read_table(options.table)
    mill = Mill(options.build.resolve(), table, options.table, options.seeds or table.SEEDS)
    chosen = share_of(table, options.share)
    if options.names:
        chosen = [mutant for mutant in table.MUTANTS if mutant.name in options.names]
    for problem in (misplaced := mill.misplaced(table.MUTANTS)):
        print(problem)
    if misplaced:
        return 1
    began = time.monotonic()
    survivors = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, (found, how) in zip(chosen, pool.map(mill.judge, chosen)):
            print(f"{'found   ' if found else 'NOT FOUND'}  {mutant.name}: {how}", flush=True)
            if not found:
                print(f"           it breaks: {mutant.breaks}", flush=True)
                survivors.append(mutant.name)
    print(f"{len(chosen)} of {len(table.MUTANTS)} mutants, {len(survivors)} not found, {time.monotonic() - began:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
