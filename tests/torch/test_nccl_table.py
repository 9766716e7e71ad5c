"""bench/gpu/nccl_table.py under torchrun: on CPUs over gloo here, also on the user-space HCA's side of `tensorwire soft`; and how it
reads NCCL's log."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/gpu/nccl_table.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def load():
    spec = importlib.util.spec_from_file_location("nccl_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Table(unittest.TestCase):
    def run_table(self, *arguments, ranks=2, before=()):
        return subprocess.run([*before, *TORCHRUN, str(ranks), str(SCRIPT), *arguments], text=True, capture_output=True, timeout=150)

    def assert_rows(self, done, folder, ranks, type_):
        self.assertEqual(0, done.returncode, done.stderr)
        report = json.loads(pathlib.Path(folder, "table.json").read_text())
        self.assertEqual([(4096, type_), (65536, type_)], [(row["size"], row["type"]) for row in report["rows"]])
        for row in report["rows"]:
            self.assertEqual(0, row["wrong"], row)
            self.assertTrue(0 < row["p50_us"] <= row["p99_us"], row)
            self.assertAlmostEqual(row["size"] / row["p50_us"] / 1000, row["algbw"], places=6)
            self.assertAlmostEqual(row["algbw"] * 2 * (ranks - 1) / ranks, row["busbw"], places=6)
        self.assertEqual(1, done.stdout.count("#wrong"), done.stdout)

    def test_rows_and_sums(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_table("--backend", "gloo", "--bytes", "4K,64KiB", "--turns", "20", "--type", "bfloat16", "--json",
                                  f"{folder}/table.json", ranks=3)
            self.assert_rows(done, folder, 3, "bfloat16")

    def test_torchrun_under_soft(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_table("--backend", "gloo", "--bytes", "4K,64K", "--turns", "20", "--json", f"{folder}/table.json",
                                  before=(os.environ["TENSORWIRE_BIN"], "soft", "--"))
            self.assert_rows(done, folder, 2, "float")

    def test_without_a_gpu_it_says_so(self):
        done = subprocess.run([sys.executable, str(SCRIPT)], text=True, capture_output=True, timeout=100,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual((77, "skipped: there is no GPU 0 here (--backend gloo runs on CPUs)\n"), (done.returncode, done.stdout), done.stderr)

    def test_a_way_is_not_expected_of_gloo(self):
        done = subprocess.run([sys.executable, str(SCRIPT), "--backend", "gloo", "--expect", "IB"], text=True, capture_output=True,
                              timeout=100)
        self.assertEqual(2, done.returncode)
        self.assertIn("--expect is about NCCL", done.stderr)


class Log(unittest.TestCase):
    LINES = """\
h:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/{way}/0
h:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] [send] via NET/{way}/1/GDRDMA
"""

    def test_the_ways_of_all_channels(self):
        ways = load().ways
        self.assertEqual({"IB"}, ways(self.LINES.format(way="IB")))
        self.assertEqual({"Socket"}, ways(self.LINES.format(way="Socket")))
        more = "h:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\nh:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        self.assertEqual({"IB", "SHM", "P2P"}, ways(self.LINES.format(way="IB") + more))
        self.assertEqual(set(), ways("h:1:1 [0] NCCL INFO Using network IB\n"))


class Wrong(unittest.TestCase):
    """The check finds what is wrong: a reduction that does nothing, and one that changes one element."""

    def test_wrong_elements_are_counted(self):
        import torch
        import torch.distributed as dist
        table = load()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            tensor = torch.zeros(1000)
            self.assertEqual(0, table.count_wrong(tensor, lambda: dist.all_reduce(tensor), 1))
            self.assertEqual(1, table.count_wrong(tensor, lambda: tensor[17].add_(1), 1))
        finally:
            dist.destroy_process_group()


class Verdict(unittest.TestCase):
    def judge(self, expect, taken, wrong=0):
        import contextlib
        import io
        options = type("Options", (), {"backend": "nccl", "expect": expect})
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return load().judge(options, taken, [{"wrong": wrong}])

    def test_another_way_and_a_wrong_sum_fail(self):
        self.assertEqual(0, self.judge("IB", {"IB"}))
        self.assertEqual(0, self.judge(None, {"Socket"}))
        for taken in ({"Socket"}, {"IB", "SHM"}, set()):
            self.assertEqual(3, self.judge("IB", taken), taken)
        self.assertEqual(1, self.judge("IB", {"Socket"}, wrong=2))


if __name__ == "__main__":
    unittest.main()
