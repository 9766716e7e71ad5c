"""libnccl.so.2 called as vLLM's pynccl calls it, on host memory. Ranks are threads: ctypes lets them run beside each other."""
import array
import concurrent.futures
import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import unittest

import pynccl
from pynccl import Op, Type

LIBRARY = os.path.join(os.environ.get("TW_BUILD_DIR", "../../build/release"), "lib/tensorwire/nccl/libnccl.so.2")
RANKS = 3


def address(values):
    return values.buffer_info()[0]


@contextlib.contextmanager
def stderr_of_this_process():
    """What is written to file descriptor 2, by whatever library."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        lines = []
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode().splitlines()


class PyNccl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["TENSORWIRE_DEVICE"] = "soft"
        cls.library = pynccl.Library(LIBRARY)
        ids = [queue.Queue() for _ in range(RANKS)]

        def share(identifier, rank):
            if rank == 0:
                for one in ids:
                    one.put(identifier)
            return ids[rank].get(timeout=30)

        cls.threads = concurrent.futures.ThreadPoolExecutor(RANKS)
        started = cls.threads.map(
            lambda rank: pynccl.start(cls.library, lambda identifier: share(identifier, rank), rank, RANKS), range(RANKS))
        cls.versions, cls.comms = zip(*started)

    @classmethod
    def tearDownClass(cls):
        list(cls.threads.map(cls.library.ncclCommDestroy, cls.comms))
        cls.threads.shutdown()

    def on_ranks(self, body):
        """body(library, comm, rank) of every rank at once: its results."""
        return list(self.threads.map(lambda rank: body(self.library, self.comms[rank], rank), range(RANKS)))

    def test_the_version_is_one_with_windows(self):
        self.assertEqual(self.versions, (22703,) * RANKS)

    def test_reductions(self):
        def body(nccl, comm, rank):
            one = array.array("f", [rank, 1, -rank])
            nccl.ncclAllReduce(address(one), address(one), 3, Type.FLOAT32, Op.SUM, comm, None)
            highest = array.array("i", [rank])
            nccl.ncclAllReduce(address(highest), address(highest), 1, Type.INT32, Op.MAX, comm, None)
            given, share = array.array("f", range(RANKS)), array.array("f", [0])
            nccl.ncclReduceScatter(address(given), address(share), 1, Type.FLOAT32, Op.AVG, comm, None)
            return one.tolist(), highest[0], share[0]
        self.assertEqual(self.on_ranks(body), [([3, 3, -3], 2, rank) for rank in range(RANKS)])

    def test_a_reduction_to_one_rank_touches_the_roots_result_only(self):
        def body(nccl, comm, rank):
            results = []
            for root in range(RANKS):
                for count in (3, 500_000):
                    mine, sums = array.array("f", [rank + 1] * count), array.array("f", [-1] * count)
                    nccl.ncclReduce(address(mine), address(sums), count, Type.FLOAT32, Op.SUM, root, comm, None)
                    results.append((set(mine), set(sums)))
            # In place, and without a result where none is wanted.
            mine = array.array("i", [rank])
            nccl.ncclReduce(address(mine), address(mine) if rank == 1 else None, 1, Type.INT32, Op.MAX, 1, comm, None)
            return results, mine[0]
        total = sum(range(1, RANKS + 1))
        for rank, (results, highest) in enumerate(self.on_ranks(body)):
            expected = [({float(rank + 1)}, {float(total) if rank == root else -1.0})
                        for root in range(RANKS) for _ in range(2)]
            self.assertEqual(results, expected)
            self.assertEqual(highest, RANKS - 1 if rank == 1 else rank)

    def test_reduce_scatter_of_unequal_parts_is_a_group_of_reductions(self):
        sizes = [1 + 700 * rank for rank in range(RANKS)]

        def body(nccl, comm, rank):
            given = array.array("f", [rank + at % 5 for at in range(sum(sizes))])
            share = array.array("f", [-1] * sizes[rank])
            nccl.ncclGroupStart()
            begin = 0
            for root, size in enumerate(sizes):
                nccl.ncclReduce(address(given) + 4 * begin, address(share), size, Type.FLOAT32, Op.SUM, root, comm, None)
                begin += size
            nccl.ncclGroupEnd()
            return share.tolist()
        for rank, share in enumerate(self.on_ranks(body)):
            begin = sum(sizes[:rank])
            self.assertEqual(share, [sum(other + at % 5 for other in range(RANKS))
                                     for at in range(begin, begin + sizes[rank])])

    def test_moves_of_types_that_are_not_reduced(self):
        def body(nccl, comm, rank):
            gathered = array.array("q", [0] * RANKS)
            mine = array.array("q", [-rank - (1 << 40)])
            nccl.ncclAllGather(address(mine), address(gathered), 1, Type.INT64, comm, None)
            text = array.array("b", b"rank %d" % rank)
            nccl.ncclBroadcast(address(text), address(text), 6, Type.INT8, 1, comm, None)
            return gathered.tolist(), text.tobytes()
        self.assertEqual(self.on_ranks(body), [([-r - (1 << 40) for r in range(RANKS)], b"rank 1")] * RANKS)

    def test_messages_round_a_ring_within_a_group(self):
        def body(nccl, comm, rank):
            mine, theirs = array.array("d", [rank] * 1000), array.array("d", [0] * 1000)
            nccl.ncclGroupStart()
            nccl.ncclSend(address(mine), 1000, Type.FLOAT64, (rank + 1) % RANKS, comm, None)
            nccl.ncclRecv(address(theirs), 1000, Type.FLOAT64, (rank - 1) % RANKS, comm, None)
            nccl.ncclGroupEnd()
            return set(theirs)
        self.assertEqual(self.on_ranks(body), [{(rank - 1) % RANKS} for rank in range(RANKS)])

    def test_windows(self):
        def body(nccl, comm, rank):
            memory, window = array.array("f", [rank] * 4096), pynccl._pointer()
            nccl.ncclCommWindowRegister(comm, address(memory), 4 * 4096, window, 1)
            nccl.ncclAllReduce(address(memory), address(memory), 4096, Type.FLOAT32, Op.SUM, comm, None)
            nccl.ncclCommWindowDeregister(comm, window)
            return set(memory)
        self.assertEqual(self.on_ranks(body), [{3}] * RANKS)

    def test_what_is_not_supported_is_invalid_usage_and_one_line(self):
        odd = address(array.array("b", [0] * 8)) + 1
        even = odd - 1
        comm = self.comms[0]
        for arguments, line in (
                (("ncclAllReduce", even, even, 1, Type.INT64, Op.SUM, comm, None), "ncclInt64 by ncclSum is not reduced"),
                (("ncclReduceScatter", even, even, 1, Type.FLOAT32, Op.PROD, comm, None), "ncclFloat32 by ncclProd"),
                (("ncclAllReduce", even, even, 1, 99, 77, comm, None), "an unknown type by an operator of the program's own"),
                (("ncclReduce", even, even, 1, Type.INT64, Op.SUM, 0, comm, None), "ncclInt64 by ncclSum is not reduced"),
                (("ncclBroadcast", even, even, 3, Type.UINT8, 0, comm, None), "3 of ncclUint8 are not moved"),
                (("ncclSend", odd, 2, Type.UINT8, 1, comm, None), "2 of ncclUint8 are not moved"),
                (("ncclGroupEnd",), "twGroupEnd")):
            with self.subTest(line), stderr_of_this_process() as said:
                with self.assertRaises(RuntimeError) as raised:
                    getattr(self.library, arguments[0])(*arguments[1:])
                self.assertEqual(raised.exception.args[1], pynccl.INVALID_USAGE)
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], f"^tensorwire: {arguments[0]}: .*{line}")

    def test_loading_it_brings_tensorwire_from_its_own_folder(self):
        done = subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({LIBRARY!r}); print(open('/proc/self/maps').read())"],
                              text=True, capture_output=True, check=True, timeout=60)
        self.assertIn(os.path.realpath(os.path.join(os.path.dirname(LIBRARY), "../../libtensorwire.so.0")), done.stdout)


if __name__ == "__main__":
    unittest.main()
