#!/usr/bin/env python3
"""All-reduce (fp32 sum, host memory, one host) of Tensorwire beside OpenMPI and gloo, in one run, taking turns.

All ranks of all ways are up from the start; who has no turn sleeps. For each size the ways take turns, forwards and
backwards, until the size's share of the time is over. Each operation has an input of its own, its ranks start together,
its latency is the slowest rank's, and every element of its result is checked outside of the timed interval. A way with one
wrong element, or whose packet counters say that it took another path, is out, and the run ends with status 1.

usage: run.py [--programs FOLDER] [--ranks 2,4,8] [--sizes 1KiB,...] [--budget-s S] [--json FILE] [--plot FILE.svg]
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

import counters
import plot
import ranks as rank_processes
import ways

HERE = pathlib.Path(__file__).resolve().parent
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "B": 1}
SIZES = "1KiB,4KiB,16KiB,64KiB,128KiB,256KiB,512KiB,1MiB,4MiB,16MiB,64MiB,128MiB"
TURN_BOUND_S = 120


def parse_size(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(text[:-len(unit)]) * factor
    return int(text)


def size_text(size):
    for unit in ("MiB", "KiB"):
        if size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]} {unit}"
    return f"{size} B"


def percentile(ordered, share):
    """Nearest rank."""
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * share // 100) - 1))]


def iterations_for(size, most):
    """Of one turn: enough to be worth it, few enough that turns come often."""
    return max(2, min(most, (32 << 20) // size))


class Comparison:
    """All ways with one number of ranks."""

    def __init__(self, args, chosen, count, folder, failures):
        self.args, self.count, self.failures = args, count, failures
        self.first = 1  # every operation has a number of its own, the same for all ways of a round
        self.jobs = []
        for number, way in enumerate(chosen):
            place = pathlib.Path(folder, f"{count}-{number}")
            with self.failing(way.name):
                self.jobs.append(rank_processes.Ranks(way, args.programs, count, place))

    @contextlib.contextmanager
    def failing(self, way):
        """What fails is told, and out; the others go on."""
        try:
            yield
        except rank_processes.Failed as failure:
            self.failures.append(f"{self.count} ranks, {failure}")
            print(f"\nversus: {self.failures[-1]}", file=sys.stderr)
            for job in [job for job in self.jobs if job.way.name == way]:
                self.jobs.remove(job)
                job.close()

    def close(self):
        for job in self.jobs:
            job.close()

    def turn(self, job, size, iterations):
        warmup = max(1, iterations // 10)
        plant = self.args.plant_wrong if job.way.name == self.args.plant_in else -1
        before = counters.read()
        result = job.run(size, iterations, warmup, self.first, plant, self.args.huge_pages, TURN_BOUND_S)
        result["kernel"] = counters.difference(before, counters.read())
        result["operations"] = iterations + warmup
        if result["wrong"]:
            raise rank_processes.Failed(f"{job.way.name}: {result['wrong']} wrong elements in all-reduces of {size_text(size)}")
        why = counters.problem(job.way, self.count, size, iterations + warmup, result["kernel"], result["counters"])
        if why:
            raise rank_processes.Failed(f"{job.way.name}, {size_text(size)}: another path than it should have taken: {why}")
        return result

    def measure(self, size, share_s):
        iterations = iterations_for(size, self.args.iterations)
        taken = {job.way.name: [] for job in self.jobs}
        until = time.monotonic() + share_s
        for number in range(self.args.rounds):
            if number >= 2 and time.monotonic() > until:
                break
            progress(f"{self.count} ranks, {size_text(size)}, round {number + 1}")
            for job in list(self.jobs if number % 2 == 0 else reversed(self.jobs)):
                with self.failing(job.way.name):
                    taken[job.way.name].append(self.turn(job, size, iterations))
            self.first += 2 * iterations + 2
        return [row_of(self.count, size, job, taken[job.way.name]) for job in self.jobs]


def row_of(count, size, job, turns):
    samples = sorted(time_ns for turn in turns for time_ns in turn["times"])
    medians = [statistics.median(turn["times"]) / 1000 for turn in turns]
    total = {}
    for turn in turns:
        for name, value in {**turn["counters"], **turn["kernel"]}.items():
            total[name] = total.get(name, 0) + value
    return {
        "ranks": count, "bytes": size, "way": job.way.name, "path": turns[-1]["path"] or job.description,
        "rounds": len(turns), "samples": len(samples), "operations": sum(turn["operations"] for turn in turns),
        "p10_us": percentile(samples, 10) / 1000, "p50_us": statistics.median(samples) / 1000, "p99_us": percentile(samples, 99) / 1000, "max_us": samples[-1] / 1000,
        "p50_of_rounds_us": [min(medians), max(medians)], "wrong": 0, "counters": total,
    }


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)


def render(rows):
    text = ""
    for count in sorted({row["ranks"] for row in rows}):
        text += f"\n{count} ranks, p50 us (p99); times the rival\n"
        here = [row for row in rows if row["ranks"] == count]
        names = list(dict.fromkeys(row["way"] for row in here))
        text += f"{'size':>9}" + "".join(f" {name:>22}" for name in names) + "\n"
        for size in sorted({row["bytes"] for row in here}):
            by_way = {row["way"]: row for row in here if row["bytes"] == size}
            text += f"{size_text(size):>9}"
            for name in names:
                row = by_way.get(name)
                text += f" {row['p50_us']:>12.1f} ({row['p99_us']:>7.1f})" if row else f" {'-':>22}"
            text += "   " + verdicts(by_way) + "\n"
    return text


def verdicts(by_way):
    parts = []
    for ours, rivals in ways.RIVALS.items():
        for rival in rivals:
            if ours in by_way and rival in by_way:
                parts.append(f"{by_way[ours]['p50_us'] / by_way[rival]['p50_us']:.2f} x {rival}")
    return ", ".join(parts)


def hardware():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{len(os.sched_getaffinity(0))} cores, {line.split(':', 1)[1].strip()}, Linux {platform.release()}"
    return f"{len(os.sched_getaffinity(0))} cores, Linux {platform.release()}"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    default = next((folder for folder in (HERE / "bin", HERE.parent.parent / "build/release/bin") if folder.is_dir()), HERE)
    parser.add_argument("--programs", default=default, help="the folder of versus_tensorwire and the others")
    parser.add_argument("--ranks", default="2", help="numbers of ranks, separated by commas")
    parser.add_argument("--sizes", default=SIZES, help="of the tensor, separated by commas")
    parser.add_argument("--ways", default=",".join(ways.WAYS), help="which, separated by commas")
    parser.add_argument("--budget-s", type=float, default=240, help="seconds for all; each size takes its share, but two rounds at least")
    parser.add_argument("--rounds", type=int, default=50, help="turns of each way at each size, at most")
    parser.add_argument("--iterations", type=int, default=200, help="timed all-reduces of a turn, at most")
    parser.add_argument("--huge-pages", action="store_true", help="tensors of all ways in transparent huge pages")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--plot", help="draw p50 over size into this SVG file")
    parser.add_argument("--plant-in", default="", help=argparse.SUPPRESS)  # for tests: a way, and which of its operations
    parser.add_argument("--plant-wrong", type=int, default=-1, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = parse_arguments()
    asked = [ways.WAYS[name] for name in args.ways.split(",")]
    missing = {way.name: why for way in asked if (why := way.missing(args.programs))}
    for name, why in missing.items():
        print(f"{name} is left out: {why}", file=sys.stderr)
    chosen = [way for way in asked if way.name not in missing]
    sizes = [parse_size(text) for text in args.sizes.split(",")]
    counts = [int(text) for text in args.ranks.split(",")]
    cells = len(sizes) * len(counts)
    deadline = time.monotonic() + args.budget_s
    report = {"date": datetime.date.today().isoformat(), "hardware": hardware(), "command": " ".join(sys.argv[1:]),
              "left_out": missing, "failures": [], "ways": {}, "results": []}
    with tempfile.TemporaryDirectory(prefix="versus") as folder:
        for count in counts:
            comparison = Comparison(args, chosen, count, folder, report["failures"])
            try:
                report["ways"].update({job.way.name: job.description for job in comparison.jobs})
                for size in sizes:
                    report["results"] += comparison.measure(size, max(0, deadline - time.monotonic()) / cells)
                    cells -= 1
                    save(args, report)
            finally:
                comparison.close()
    progress("")
    print(render(report["results"]))
    return 1 if report["failures"] else 0


def save(args, report):
    """After each size: a run that is cut off has what it measured. A line for each result."""
    if args.json:
        head = {name: value for name, value in report.items() if name != "results"}
        rows = ",\n".join("  " + json.dumps(row) for row in report["results"])
        pathlib.Path(args.json).write_text(json.dumps(head, indent=1)[:-2] + ',\n "results": [\n' + rows + "\n ]\n}\n")
    if args.plot and report["results"]:
        pathlib.Path(args.plot).write_text(plot.svg(report["results"]))


if __name__ == "__main__":
    sys.exit(main())
