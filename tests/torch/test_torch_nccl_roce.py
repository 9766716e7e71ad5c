"""python/tensorwire/torch_nccl_roce.py under torchrun: on CPUs over gloo here, with NCCL where there are GPUs."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "python/tensorwire/torch_nccl_roce.py"
ELEMENTS = 16 * 8192


class Torchrun(unittest.TestCase):
    def run_ranks(self, ranks):
        return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(SCRIPT)],
                              text=True, capture_output=True, timeout=150,
                              env={**os.environ, "NCCL_DEBUG": "WARN", "TENSORWIRE_PROGRAM": os.environ["TENSORWIRE_BIN"]})

    def test_sums_and_percentiles(self):
        done = self.run_ranks(2)
        self.assertEqual(0, done.returncode, done.stderr)
        for rank in range(2):
            found = re.search(rf"rank {rank}/2 (nccl|gloo): sum {(rank + 1) * ELEMENTS} -> {3 * ELEMENTS}, 256 KiB all-reduce "
                              r"p50 ([\d.]+) us, p99 ([\d.]+) us", done.stdout)
            self.assertIsNotNone(found, done.stdout)
            p50, p99 = map(float, found.groups()[1:])
            self.assertTrue(0 < p50 <= p99, found.group())


if __name__ == "__main__":
    unittest.main()
