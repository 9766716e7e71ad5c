#!/usr/bin/env python3
"""All-reduce of one host side by side with OpenMPI: same sizes, same element type, ways taking turns round by round.

Ours: the same-host link, RoCEv2 packets. OpenMPI's: its shared-memory transport (vader), its TCP. Medians over rounds. Needs
mpicc and mpirun (Debian: openmpi-bin libopenmpi-dev) and cores that nothing else uses.

usage: against_openmpi.py [--program PATH] [--ranks N] [--sizes 262144,...] [--rounds N] [--iterations N] [--json FILE]
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARMUP = 50
BOUND_S = 120


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def ours(path, args, size, folder):
    report = folder / "report.json"
    run([args.program, "bench", "allreduce", "--ranks", args.ranks, "--dtype", "fp32", "--paths", path, "-b", size, "-e", size,
         "-n", args.iterations, "-w", str(WARMUP), "--json", report])
    return json.loads(report.read_text())["results"][0]


def openmpi(transport, args, size, folder):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    out = run(["mpirun", *root, "-n", args.ranks, "--mca", "pml", "ob1", "--mca", "btl", f"{transport},self",
               folder / "mpi_allreduce", size, args.iterations, str(WARMUP)])
    return json.loads(out.strip().splitlines()[-1])


WAYS = {
    "same-host link": lambda *a: ours("local", *a),
    "RoCEv2 packets": lambda *a: ours("roce", *a),
    "OpenMPI shared memory": lambda *a: openmpi("vader", *a),
    "OpenMPI tcp": lambda *a: openmpi("tcp", *a),
}


def measure(args, size, folder):
    samples = {way: [] for way in WAYS}
    for round_number in range(int(args.rounds)):
        print(f"\r{size} bytes, round {round_number + 1} of {args.rounds}", end="", file=sys.stderr, flush=True)
        for way, measure_once in WAYS.items():
            samples[way].append(measure_once(args, size, folder))
    print("\r" + " " * 50 + "\r", end="", file=sys.stderr)
    wrong = sum(sample["wrong"] for way in samples.values() for sample in way)
    if wrong:
        sys.exit(f"{wrong} elements of {size} bytes are wrong")
    return {way: {key: statistics.median(sample[key] for sample in taken) for key in ("p50_us", "p99_us")}
            for way, taken in samples.items()}


def show(size, ranks, row):
    shared, tcp = row["OpenMPI shared memory"]["p50_us"], row["OpenMPI tcp"]["p50_us"]
    print(f"{size} bytes fp32, {ranks} ranks")
    print(f"  {'':<22} {'p50 us':>8} {'p99 us':>8} {'/ OpenMPI shared memory':>24} {'/ OpenMPI tcp':>14}")
    for way, took in row.items():
        print(f"  {way:<22} {took['p50_us']:>8.1f} {took['p99_us']:>8.1f} {took['p50_us'] / shared:>24.2f}"
              f" {took['p50_us'] / tcp:>14.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", default=HERE.parent / "build/release/bin/tensorwire", help="the built tensorwire")
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--sizes", default="262144", help="bytes, separated by commas")
    parser.add_argument("--rounds", default="5")
    parser.add_argument("--iterations", default="1000", help="timed all-reduces in each round")
    parser.add_argument("--json", help="write the medians to this file")
    args = parser.parse_args()
    for tool in ("mpicc", "mpirun"):
        if not shutil.which(tool):
            sys.exit(f"{tool} is not installed: apt-get install openmpi-bin libopenmpi-dev")
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(["mpicc", "-O2", "-o", folder / "mpi_allreduce", HERE / "peers/mpi_allreduce.c"])
        for size in args.sizes.split(","):
            rows[size] = measure(args, size, folder)
            show(size, args.ranks, rows[size])
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"ranks": int(args.ranks), "dtype": "fp32", "medians": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
