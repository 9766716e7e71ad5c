#!/usr/bin/env python3
"""Instructions that the transport engine spends on one packet, both ends together, counted by callgrind.

Runs `transport_engine --packets N` for two N and takes the difference, so that start and set-up drop out. Counts are the same
on every run. Needs valgrind and a build with -DTENSORWIRE_BENCH=ON.

usage: engine_instructions.py PATH/TO/transport_engine
"""
import pathlib
import re
import subprocess
import sys
import tempfile

FEW, MANY = 20_000, 120_000
SIZES = (64, 4096, 256 * 1024)


def instructions(program, packets, size):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, "--packets", str(packets), str(size)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit status {run.returncode}\n{run.stderr}")
        return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE).group(1))


def main(program):
    print(f"{'message':>10} {'instructions a packet':>22}")
    for size in SIZES:
        spent = instructions(program, MANY, size) - instructions(program, FEW, size)
        print(f"{size:>8} B {spent / (MANY - FEW):>22.0f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
