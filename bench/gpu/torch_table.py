#!/usr/bin/env python3
"""All-reduces between the GPUs of this host as PyTorch programs call them, all ways in the same processes: Tensorwire's operators,
PyTorch's NCCL, PyTorch's symmetric memory (one-shot and two-shot), and FlashInfer's where it can be imported.

For each size and way a CUDA graph of dependent operations with a spacer kernel between them is replayed, the ways taking turns,
forwards and backwards. The time of an operation is that of a replay, less that of a replay of the spacers alone, over the
operations in it; the slowest rank's counts. Every way's sums are checked before and after.

    PYTHONPATH=python torch_table.py --processes 5          starts a rank for each GPU, five times over, and takes medians
    torchrun --standalone --nproc-per-node 2 torch_table.py a single time

Exit status: 0; 1 if a sum is wrong; 77 where PyTorch, Tensorwire's package or two GPUs are missing.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

WRONG_SUM, SKIPPED = 1, 77
WAYS = ("tensorwire", "nccl", "one-shot", "two-shot", "flashinfer")
HIDDEN = 8192  # of a row, where a way wants to know


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bytes", type=lambda text: [int(one) for one in text.split(",")],
                        default=[16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20], help="multiples of 16384")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--replays", type=int, default=20, help="of a turn")
    parser.add_argument("--per-graph", type=int, default=40)
    parser.add_argument("--processes", type=int, default=1, help="so many times, each in processes of its own")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if set(options.ways) - set(WAYS):
        parser.error(f"--ways: of {', '.join(WAYS)}")
    if any(bytes_ <= 0 or bytes_ % (2 * HIDDEN) for bytes_ in options.bytes):
        parser.error(f"--bytes: multiples of {2 * HIDDEN}")
    if min(options.turns, options.replays, options.per_graph, options.processes) < 1:
        parser.error("--turns, --replays, --per-graph and --processes: at least 1")
    return options


class Way:
    """Sums `given` over the ranks into `got`; both are bf16 tensors of rows of HIDDEN, and may be the same."""

    def __init__(self, rows, device):
        self.given = torch.zeros(rows, HIDDEN, dtype=torch.bfloat16, device=device)
        self.got = torch.zeros_like(self.given)

    def run(self):
        raise NotImplementedError


class Tensorwire(Way):
    def __init__(self, rows, device):
        super().__init__(rows, device)
        from tensorwire import tensors
        self.tensors, self.comm = tensors, communicator(device)

    def run(self):
        self.tensors.all_reduce(self.comm, self.given, self.got)


class Nccl(Way):
    def __init__(self, rows, device):
        super().__init__(rows, device)
        self.got = self.given

    def run(self):
        dist.all_reduce(self.given)


class SymmetricMemory(Way):
    def __init__(self, rows, device):
        import torch.distributed._symmetric_memory as symmetric
        self.given = symmetric.empty(rows, HIDDEN, dtype=torch.bfloat16, device=device)
        self.group = dist.group.WORLD.group_name
        symmetric.rendezvous(self.given, group=self.group)
        self.given.zero_()


class OneShot(SymmetricMemory):
    def __init__(self, rows, device):
        super().__init__(rows, device)
        self.got = torch.zeros(rows, HIDDEN, dtype=torch.bfloat16, device=device)

    def run(self):
        torch.ops.symm_mem.one_shot_all_reduce_out(self.given, "sum", self.group, self.got)


class TwoShot(SymmetricMemory):
    def __init__(self, rows, device):
        super().__init__(rows, device)
        self.got = self.given

    def run(self):
        torch.ops.symm_mem.two_shot_all_reduce_(self.given, "sum", self.group)


class FlashInfer(Way):
    def __init__(self, rows, device):
        super().__init__(rows, device)
        import flashinfer.comm
        from flashinfer.comm.mnnvl import TorchDistBackend
        self.flashinfer = flashinfer.comm
        self.workspace = flashinfer.comm.create_allreduce_fusion_workspace(
            backend="trtllm", world_size=dist.get_world_size(), rank=dist.get_rank(), max_token_num=rows, hidden_dim=HIDDEN,
            dtype=torch.bfloat16, comm_backend=TorchDistBackend(group=dist.group.WORLD), group=dist.group.WORLD)

    def run(self):
        self.got = self.flashinfer.allreduce_fusion(
            input=self.given, workspace=self.workspace, launch_with_pdl=True,
            pattern=self.flashinfer.AllReduceFusionPattern.kAllReduce)


CLASSES = dict(zip(WAYS, (Tensorwire, Nccl, OneShot, TwoShot, FlashInfer)))
_communicators = []


def communicator(device):
    """Tensorwire's, made once; the ranks share its identifier through PyTorch's group."""
    if not _communicators:
        import tensorwire
        identifier = [tensorwire.unique_id() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(identifier)
        os.environ.setdefault("TENSORWIRE_DEVICE", "soft")  # carries nothing here: the path is from GPU to GPU
        made = tensorwire.Communicator.join(identifier[0], dist.get_world_size(), dist.get_rank())
        made.use_gpu(device.index)
        _communicators.append(made)
    return _communicators[0]


def missing(way):
    """Why this way cannot be tried here; empty: it can."""
    if way == "flashinfer" and importlib.util.find_spec("flashinfer") is None:
        return "FlashInfer is not installed"
    if way == "tensorwire" and importlib.util.find_spec("tensorwire") is None:
        return "the package tensorwire is not on PYTHONPATH"
    if way in ("one-shot", "two-shot") and not hasattr(torch.ops, "symm_mem"):
        return f"PyTorch {torch.__version__} has no symmetric memory"
    return ""


class Measured:
    """A way's graphs, and what they took."""

    def __init__(self, way, operations):
        self.way, self.operations, self.times = way, operations, []
        way.run()  # whatever is loaded or connected late
        self.spacer()
        torch.cuda.synchronize()
        self.spacers, self.all = self.capture(False), self.capture(True)
        self.marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def spacer(self):
        """Depends on the last result, and the next operation on it; zeros stay zeros."""
        torch.mul(self.way.got, 0.5, out=self.way.given)

    def capture(self, with_operations):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # PyTorch's watchdog goes on calling CUDA
            for _ in range(self.operations):
                self.spacer()
                if with_operations:
                    self.way.run()
        return graph

    def took(self, graph):
        dist.barrier()
        begin, end = self.marks
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000

    def turn(self, replays, keeps):
        for replay in range(replays):
            spacers, all_ = self.took(self.spacers), self.took(self.all)
            if keeps and replay >= 3:  # the first ones of a turn find the GPU at rest
                self.times.append((all_ - spacers) / self.operations)

    def wrong(self):
        """Elements of one sum, of small whole numbers, that are not right."""
        rank, world = dist.get_rank(), dist.get_world_size()
        pattern = torch.arange(self.way.given.numel(), device=self.way.given.device).reshape(self.way.given.shape) % 7
        self.way.given.copy_(pattern + rank)
        self.way.run()
        torch.cuda.synchronize()
        expected = pattern * world + sum(range(world))
        found = int((self.way.got.float() != expected).sum())
        dist.barrier()  # all have looked, before anyone writes there again
        self.way.given.zero_()
        self.way.got.zero_()
        torch.cuda.synchronize()
        dist.barrier()
        return found


def slowest(times, device):
    """Of each replay the slowest rank's time."""
    tensor = torch.tensor(times, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def measure(bytes_, options, device):
    operations = options.per_graph if bytes_ < 4 << 20 else max(1, options.per_graph // 4)
    rows = bytes_ // (2 * HIDDEN)
    measured = {name: Measured(CLASSES[name](rows, device), operations) for name in options.ways}
    wrong = {name: one.wrong() for name, one in measured.items()}
    for turn in range(options.turns + 1):  # the first one warms up
        names = options.ways if turn % 2 == 0 else options.ways[::-1]
        for name in names:
            measured[name].turn(options.replays, turn > 0)
    found = []
    for name, one in measured.items():
        times = sorted(slowest(one.times, device))
        total = torch.tensor(wrong[name] + one.wrong(), device=device)
        dist.all_reduce(total)
        found.append({"bytes": bytes_, "way": name, "p50_us": statistics.median(times),
                      "p99_us": times[min(len(times) - 1, len(times) * 99 // 100)], "least_us": times[0], "wrong": int(total)})
    return found


def rank_main(options):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    try:
        first = dist.get_rank() == 0
        for way in list(options.ways):
            if missing(way):
                options.ways.remove(way)
                if first:
                    print(f"# {way} is left out: {missing(way)}")
        rows = [row for bytes_ in options.bytes for row in measure(bytes_, options, device)]
        if first and options.json:
            options.json.write_text(json.dumps({"torch": torch.__version__, "nccl": torch.cuda.nccl.version(),
                                                "ranks": dist.get_world_size(), "rows": rows}, indent=1) + "\n")
        if first:
            show(rows)
        return WRONG_SUM if any(row["wrong"] for row in rows) else 0
    finally:
        for made in _communicators:
            made.destroy()
        dist.destroy_process_group()


def show(rows):
    for row in rows:
        print(f"{row['bytes']:>10}  {row['way']:<12} p50 {row['p50_us']:8.2f}  p99 {row['p99_us']:8.2f}  least {row['least_us']:8.2f} us"
              f"{'' if row['wrong'] == 0 else '  WRONG: ' + str(row['wrong']) + ' elements'}", flush=True)


def merged(runs):
    """p50 is the median of the runs' medians, p99 the worst of theirs."""
    places = {}
    for run in runs:
        for row in run["rows"]:
            places.setdefault((row["bytes"], row["way"]), []).append(row)
    return [{"bytes": bytes_, "way": way, "p50_us": statistics.median(row["p50_us"] for row in rows),
             "p99_us": max(row["p99_us"] for row in rows), "least_us": min(row["least_us"] for row in rows),
             "wrong": sum(row["wrong"] for row in rows)} for (bytes_, way), rows in places.items()]


def launch(options):
    """As many runs as were asked for, one after the other."""
    gpus = torch.cuda.device_count()
    if gpus < 2:
        print("skipped: it takes two GPUs, one for each rank")
        return SKIPPED
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for process in range(options.processes):
            table = pathlib.Path(folder, f"{process}.json")
            done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}", __file__,
                                   f"--bytes={','.join(map(str, options.bytes))}", f"--ways={','.join(options.ways)}",
                                   f"--turns={options.turns}", f"--replays={options.replays}", f"--per-graph={options.per_graph}",
                                   f"--json={table}"], timeout=900, check=False)
            if done.returncode != 0:
                return done.returncode
            runs.append(json.loads(table.read_text()))
    rows = merged(runs)
    if options.processes > 1:
        print(f"# of {options.processes} runs: the median of their medians, the worst p99")
        show(rows)
    if options.json:
        options.json.write_text(json.dumps({**runs[0], "runs": len(runs), "rows": rows}, indent=1) + "\n")
    return 0


def main():
    options = arguments()
    if not torch.cuda.is_available():
        print("skipped: there is no GPU here")
        return SKIPPED
    return rank_main(options) if "LOCAL_RANK" in os.environ else launch(options)


if __name__ == "__main__":
    sys.exit(main())
