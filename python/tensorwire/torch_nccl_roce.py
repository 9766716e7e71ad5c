"""A tensor-parallel all-reduce through PyTorch and NCCL over RoCEv2: the environment, one row-parallel layer's all-reduce, its
check and its latency. Start it with torchrun:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 torch_nccl_roce.py

Without a GPU it runs on CPUs over gloo. The environment comes from `tensorwire nccl-env`, which looks at the host: GID index, ports
near the GPUs, traffic class. What you have set yourself is kept.
"""
import json
import os
import shutil
import statistics
import subprocess
import time

BATCH, HIDDEN = 16, 8192  # one decode step of Llama-3 70B: 256 KiB in fp16
WARM_UP, ITERATIONS = 10, 200
TRAFFIC_CLASS = 26 << 2  # DSCP 26
PROGRAM_TIMEOUT_S = 20


def recommended_environment():
    """{name: value} from `tensorwire nccl-env --json`; only what holds on every host where the program is not installed.

    TENSORWIRE_PROGRAM names it; else it is looked for in PATH.
    """
    program = os.environ.get("TENSORWIRE_PROGRAM") or shutil.which("tensorwire")
    if program is None:
        return {"NCCL_IB_TC": str(TRAFFIC_CLASS)}
    done = subprocess.run([program, "nccl-env", "--json"], text=True, capture_output=True, timeout=PROGRAM_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{program} nccl-env failed: {done.stderr.strip()}")
    return {name: line["value"] for name, line in json.loads(done.stdout)["environment"].items()}


def init_nccl_rocev2_environment(local_rank, world_size, master_addr, master_port):
    """Sets what NCCL and torch.distributed read, before either is initialised.

    Args:
        local_rank: rank among the processes of this host; also its rank in the world unless RANK says otherwise.
        world_size: number of processes.
        master_addr, master_port: where rank 0 listens.
    Returns:
        {name: value} of what was set; variables that were set already are kept and are not in it.
    """
    wanted = {**recommended_environment(), "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL,ENV,NET",
              "MASTER_ADDR": str(master_addr), "MASTER_PORT": str(master_port), "RANK": str(local_rank),
              "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(local_rank)}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    return added


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def run_tensor_parallel_allreduce(local_rank, world_size):
    """All-reduces a BATCH x HIDDEN fp16 tensor of (rank + 1), checks that every element becomes n (n + 1) / 2, and times it.

    Args:
        local_rank: the GPU of this process, where there are GPUs.
        world_size: number of processes.
    Returns:
        {"backend", "sum_before", "sum_after", "p50_us", "p99_us"} of this rank.
    Raises:
        RuntimeError: the result is wrong.
    """
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.is_available()
    backend = "nccl" if on_gpu else "gloo"
    device = torch.device("cuda", local_rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(backend, world_size=world_size)
    try:
        rank = dist.get_rank()
        # Row-parallel: each rank holds a partial sum of the layer's output.
        partial = torch.full((BATCH, HIDDEN), rank + 1, dtype=torch.float16, device=device)
        before = partial.float().sum().item()
        dist.barrier()
        dist.all_reduce(partial, op=dist.ReduceOp.SUM)
        after = partial.float().sum().item()
        expected = world_size * (world_size + 1) // 2
        if not bool((partial == expected).all()):
            raise RuntimeError(f"rank {rank}: the all-reduce is wrong: sum {after}, not {expected * partial.numel()}")

        def once():
            started = time.perf_counter()
            dist.all_reduce(partial, op=dist.ReduceOp.MAX)  # leaves the values what they are
            if on_gpu:
                torch.cuda.synchronize()
            return (time.perf_counter() - started) * 1e6

        for _ in range(WARM_UP):
            once()
        times = sorted(once() for _ in range(ITERATIONS))
        return {"backend": backend, "sum_before": before, "sum_after": after, "p50_us": statistics.median(times),
                "p99_us": percentile(times, 0.99)}
    finally:
        dist.destroy_process_group()


def main():
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    init_nccl_rocev2_environment(local_rank, world_size, os.environ.get("MASTER_ADDR", "127.0.0.1"),
                                 os.environ.get("MASTER_PORT", "29500"))
    result = run_tensor_parallel_allreduce(local_rank, world_size)
    # One write a rank: lines of several ranks then do not mix.
    print(f"rank {os.environ['RANK']}/{world_size} {result['backend']}: sum {result['sum_before']:.0f} -> {result['sum_after']:.0f}, "
          f"256 KiB all-reduce p50 {result['p50_us']:.1f} us, p99 {result['p99_us']:.1f} us\n", end="", flush=True)


if __name__ == "__main__":
    main()
