#!/usr/bin/env python3
"""All-reduces of PyTorch's own NCCL, as a table in the shape of nccl-tests', with every sum checked: a program that knows nothing
of Tensorwire. What it runs on is said by NCCL itself, whose log is read for the transport of each channel.

    tensorwire soft -- torchrun --standalone --nproc-per-node 2 nccl_table.py --expect IB      (NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1)
    torchrun --standalone --nproc-per-node 2 nccl_table.py --expect Socket                     (NCCL_NET=Socket besides)
    torchrun --standalone --nproc-per-node 2 nccl_table.py --backend gloo                      (without GPUs)

Exit status: 0; 1 if a sum is wrong; 3 if NCCL took another way than the expected one; 77 where PyTorch or GPUs are missing.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

TYPES = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
CHECKS = 3
PATTERN = 4  # elements are 0 to 3: every sum of up to 64 ranks is exact in each type
WRONG_SUM, WRONG_WAY, SKIPPED = 1, 3, 77


def size(text):
    """8K, 256KiB, 1M -> bytes"""
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text}: a size is written as 4096, 8K or 1MiB")
    return int(match[1]) * UNITS[match[2]]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--bytes", type=lambda text: [size(one) for one in text.split(",")],
                        default=[8 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20], help="8K,64K,256K,1M,16M")
    parser.add_argument("--type", choices=TYPES, default="float")
    parser.add_argument("--modes", default="graph,eager", help="graph,eager; only eager on CPUs")
    parser.add_argument("--turns", type=int, default=200, help="timed all-reduces, or replays, of each size")
    parser.add_argument("--per-graph", type=int, default=10, help="all-reduces in a CUDA graph")
    parser.add_argument("--gpu", type=int, default=int(os.environ.get("LOCAL_RANK", 0)), help="default: LOCAL_RANK")
    parser.add_argument("--expect", choices=("IB", "Socket", "P2P", "SHM"), help="the only way that NCCL may take")
    parser.add_argument("--json", type=pathlib.Path, help="rank 0 writes the table there")
    parser.add_argument("--keep-log", type=pathlib.Path, help="a folder that keeps what NCCL says about its channels, by rank")
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    if set(options.modes) - {"graph", "eager"}:
        parser.error("--modes: graph, eager or both")
    if options.turns < 1 or options.per_graph < 1:
        parser.error("--turns and --per-graph: at least 1")
    if options.backend == "gloo":
        if options.expect:
            parser.error("--expect is about NCCL, and --backend gloo has none")
        options.modes = ["eager"]
    return options


def keep_nccl_log(folder):
    """Sends what NCCL says about its channels to a file of this process."""
    path = pathlib.Path(folder, f"nccl-{os.environ.get('RANK', 0)}.log")
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,ENV,P2P,SHM", NCCL_DEBUG_FILE=str(path))
    return path


def ways(log):
    """The transports of all channels that NCCL's log names: {"NET/IB", "P2P", "SHM"}."""
    found = re.findall(r" via (NET/[\w-]+|P2P|SHM)", log)
    return {way.removeprefix("NET/") for way in found}


def pattern(count, shift, dtype, device):
    return ((torch.arange(count, device=device) + shift) % PATTERN).to(dtype)


def count_wrong(tensor, reduce_it, turn):
    """How many elements of this rank's result are not the sum."""
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor.copy_(pattern(tensor.numel(), rank + turn, tensor.dtype, tensor.device))
    reduce_it()
    wanted = sum(pattern(tensor.numel(), other + turn, torch.float32, tensor.device) for other in range(world))
    return int((tensor.to(torch.float32) != wanted).sum())


class GpuClock:
    """Microseconds on the GPU's own clock between a call's begin and its end, turn by turn, without waiting in between."""

    def times(self, call, turns):
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(turns)]
        for begin, end in marks:
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1000 for begin, end in marks]


class CpuClock:
    def times(self, call, turns):
        result = []
        for _ in range(turns):
            begin = time.perf_counter()
            call()
            result.append((time.perf_counter() - begin) * 1e6)
        return result


class Eager:
    name, calls = "eager", 1

    def __init__(self, tensor, _):
        self.tensor = tensor

    def one(self):
        dist.all_reduce(self.tensor)

    many = one

    def close(self):
        pass


class Graph:
    """A graph with one all-reduce to check, and one with several to time."""
    name = "graph"

    def __init__(self, tensor, calls):
        self.calls = calls
        for _ in range(3):
            dist.all_reduce(tensor)  # NCCL connects before it is captured
        torch.cuda.synchronize()
        self.single, self.several = self._capture(tensor, 1), self._capture(tensor, calls)
        self.one, self.many = self.single.replay, self.several.replay

    @staticmethod
    def _capture(tensor, calls):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # PyTorch's watchdog goes on calling CUDA
            for _ in range(calls):
                dist.all_reduce(tensor)
        return graph

    def close(self):
        torch.cuda.synchronize()
        self.single.reset()
        self.several.reset()


def over_ranks(value, operation, device):
    tensor = torch.tensor([float(value)], dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=operation)
    return tensor.item()


def measure(bytes_, mode, options, device, clock):
    """A row of the table: times are the slowest rank's, wrong elements all ranks' together."""
    dtype = TYPES[options.type]
    count = max(1, bytes_ // dtype.itemsize)
    tensor = torch.zeros(count, dtype=dtype, device=device)
    way = mode(tensor, options.per_graph)
    try:
        wrong = sum(count_wrong(tensor, way.one, turn) for turn in range(CHECKS))
        tensor.zero_()  # stays zero however often it is summed
        clock.times(way.many, max(5, options.turns // 10))
        times = [time_ / way.calls for time_ in clock.times(way.many, options.turns)]
        wrong += sum(count_wrong(tensor, way.one, turn) for turn in range(CHECKS))
    finally:
        way.close()
    median = over_ranks(statistics.median(times), dist.ReduceOp.MAX, device)
    late = over_ranks(sorted(times)[min(len(times) - 1, int(len(times) * 0.99))], dist.ReduceOp.MAX, device)
    world = dist.get_world_size()
    algorithm = count * dtype.itemsize / median / 1000  # GB/s
    return {"size": count * dtype.itemsize, "count": count, "type": options.type, "mode": mode.name, "p50_us": median, "p99_us": late,
            "algbw": algorithm, "busbw": algorithm * 2 * (world - 1) / world,
            "wrong": int(over_ranks(wrong, dist.ReduceOp.SUM, device))}


def print_header(options):
    where = f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}" if options.backend == "nccl" else "gloo"
    print(f"# all_reduce sum, {dist.get_world_size()} ranks, {where}, PyTorch {torch.__version__}")
    print(f"# {'size':>10} {'count':>10} {'type':>9} {'mode':>6} {'p50 us':>10} {'p99 us':>10} {'algbw':>8} {'busbw':>8} {'#wrong':>7}")


def print_row(row):
    print(f"  {row['size']:>10} {row['count']:>10} {row['type']:>9} {row['mode']:>6} {row['p50_us']:>10.1f} {row['p99_us']:>10.1f} "
          f"{row['algbw']:>8.3f} {row['busbw']:>8.3f} {row['wrong']:>7}", flush=True)


def judge(options, taken, rows):
    """What all ranks find together, as an exit status; rank 0 says it."""
    status = 0
    if options.backend == "nccl":
        print(f"# NCCL went via {', '.join(sorted(taken)) or 'nothing that its log names'}")
        if options.expect and taken != {options.expect}:
            print(f"nccl_table.py: NCCL was expected to go via {options.expect} and nothing else", file=sys.stderr)
            status = WRONG_WAY
    wrong = sum(row["wrong"] for row in rows)
    if wrong:
        print(f"nccl_table.py: {wrong} elements are wrong", file=sys.stderr)
        status = WRONG_SUM
    return status


def table(options, log):
    device = torch.device("cuda", options.gpu) if options.backend == "nccl" else torch.device("cpu")
    clock = GpuClock() if options.backend == "nccl" else CpuClock()
    first = dist.get_rank() == 0
    if first:
        print_header(options)
    rows = []
    for mode in (Graph, Eager):
        for bytes_ in options.bytes if mode.name in options.modes else ():
            rows.append(measure(bytes_, mode, options, device, clock))
            if first:
                print_row(rows[-1])
    said = [None] * dist.get_world_size()
    dist.all_gather_object(said, sorted(ways(log.read_text(errors="replace"))) if log else [])
    taken = set().union(*said)
    if not first:
        sys.stdout, sys.stderr = open(os.devnull, "w"), open(os.devnull, "w")
    elif options.json:
        options.json.write_text(json.dumps({"rows": rows, "ways": sorted(taken)}, indent=1) + "\n")
    return judge(options, taken, rows)


def main():
    options = arguments()
    if options.backend == "nccl" and (not torch.cuda.is_available() or options.gpu >= torch.cuda.device_count()):
        print(f"skipped: there is no GPU {options.gpu} here (--backend gloo runs on CPUs)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        if options.keep_log:
            options.keep_log.mkdir(parents=True, exist_ok=True)
        log = keep_nccl_log(options.keep_log or folder) if options.backend == "nccl" else None
        if log:
            torch.cuda.set_device(options.gpu)
        dist.init_process_group(options.backend)
        try:
            return table(options, log)
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
