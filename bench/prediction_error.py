#!/usr/bin/env python3
"""Prediction against measurement: tunes this machine, then measures all-reduces anew and compares.

The parameters come from one run of `tensorwire tune`, the times from a later one, so that the error is that of a
prediction and not of a fit.

usage: prediction_error.py PROGRAM [--ranks N]
"""
import argparse
import json
import pathlib
import subprocess
import tempfile


def tune(program, ranks, folder, name):
    report = pathlib.Path(folder) / f"{name}.json"
    subprocess.run([program, "tune", "--ranks", str(ranks), "--dry-run", "--json", str(report)], check=True,
                   stdout=subprocess.DEVNULL)
    return {(path["path"], time["algorithm"], time["bytes"]): time for path in json.loads(report.read_text())
            for time in path["times"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        predicted = tune(arguments.program, arguments.ranks, folder, "first")
        measured = tune(arguments.program, arguments.ranks, folder, "second")
    errors = {}
    print(f"{'path':>8} {'plan':>10} {'bytes':>10} {'measured us':>12} {'predicted us':>13} {'error':>7}")
    for key, time in sorted(measured.items()):
        path, algorithm, size = key
        error = predicted[key]["predicted_us"] / time["measured_us"] - 1
        errors.setdefault(path, []).append(abs(error))
        print(f"{path:>8} {algorithm:>10} {size:>10} {time['measured_us']:>12.1f} "
              f"{predicted[key]['predicted_us']:>13.1f} {error:>+7.0%}")
    for path, all_of_it in errors.items():
        print(f"{path}: mean error {sum(all_of_it) / len(all_of_it):.0%}, largest {max(all_of_it):.0%}")


if __name__ == "__main__":
    main()
