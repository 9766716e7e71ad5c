#!/usr/bin/env python3
"""Instructions, counted by callgrind, of what the benchmarks do without a network: the same on every run.

transport_engine: the engine's for one packet, both ends together. comm_null_link: one rank's for one all-reduce over a link
that is nothing. Each runs with a small and a large number of repetitions; the difference leaves start and set-up out. Needs
valgrind and a build with -DTENSORWIRE_BENCH=ON.

usage: instructions.py PATH/TO/transport_engine|PATH/TO/comm_null_link
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def packets(number, size):
    return ["--packets", number, size]


def all_reduces(number, size, ranks, plan=""):
    return ["--operations", number, size, ranks, *plan.split()]


# Program: how it is asked, few and many repetitions, [(row's name, arguments, units in one repetition)].
PROGRAMS = {
    "transport_engine": (packets, 20_000, 120_000, [(f"packet of messages of {size} B", (size,), 1) for size in (64, 4096, 256 * 1024)]),
    "comm_null_link": (all_reduces, 1_000, 6_000, [
        (f"all-reduce of {size} B, {ranks} ranks{', ' + plan if plan else ''}", (size, ranks, plan), ranks)
        for ranks in (2, 4, 8) for size, plan in ((8, ""), (64, "two-shot"))]),
}


def instructions(program, arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit status {run.returncode}\n{run.stderr}")
        return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE).group(1))


def main(program):
    ask, few, many, rows = PROGRAMS[pathlib.Path(program).name]
    for name, arguments, units in rows:
        spent = instructions(program, ask(many, *arguments)) - instructions(program, ask(few, *arguments))
        print(f"{name:<44} {spent / (many - few) / units:>8.0f} instructions")


if __name__ == "__main__":
    if len(sys.argv) != 2 or pathlib.Path(sys.argv[1]).name not in PROGRAMS:
        sys.exit(__doc__)
    main(sys.argv[1])
