"""Runs a function as the ranks of a job: forked processes, which need not import PyTorch again, in a process group of the
backend "tensorwire"."""
import contextlib
import datetime
import multiprocessing
import multiprocessing.connection
import os
import tempfile
import time
import traceback
import unittest

import torch
import torch._dynamo  # noqa: F401: the first operator brings it; before the fork, once for all ranks
import torch.distributed as dist

import tensorwire.backend  # noqa: F401: makes the backend known

BOUND_S = 180
AFTER_FAILURE_S = 5


@contextlib.contextmanager
def process_group(folder, rank, ranks, **options):
    dist.init_process_group("tensorwire", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=60), **options)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


def _rank(body, folder, rank, ranks, wrong):
    os.environ.update(TENSORWIRE_DEVICE="soft", RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    try:
        with process_group(folder, rank, ranks):
            body(rank, ranks)
    except BaseException:
        wrong.put(f"rank {rank}: {traceback.format_exc()}")
        os._exit(1)  # no clean end: the others are to see that this rank is gone


class RanksTestCase(unittest.TestCase):
    def on_ranks(self, ranks, body):
        """Runs body(rank, ranks) on every rank; fails with what went wrong on any of them."""
        context = multiprocessing.get_context("fork")
        wrong = context.SimpleQueue()
        with tempfile.TemporaryDirectory() as folder:
            processes = [context.Process(target=_rank, args=(body, folder, rank, ranks, wrong)) for rank in range(ranks)]
            for process in processes:
                process.start()
            end = time.monotonic() + BOUND_S
            while any(process.is_alive() for process in processes) and time.monotonic() < end:
                multiprocessing.connection.wait([process.sentinel for process in processes if process.is_alive()], 1)
                if any(process.exitcode for process in processes):
                    end = min(end, time.monotonic() + AFTER_FAILURE_S)
            for process in processes:
                process.kill()
                process.join()
        said = []
        while not wrong.empty():
            said.append(wrong.get())
        self.assertEqual([process.exitcode for process in processes], [0] * ranks, "\n".join(said))
