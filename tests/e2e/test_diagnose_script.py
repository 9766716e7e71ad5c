"""scripts/diagnose_roce.sh on copies of hosts: a healthy one is left in peace, each broken one is told what is wrong."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/diagnose_roce.sh"
LINK_LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"
ROUTABLE = "0000:0000:0000:0000:0000:ffff:c000:020a"
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"


class DiagnoseScript(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.port = "sys/class/infiniband/mlx5_0/ports/1"
        self.write(f"{self.port}/state", "4: ACTIVE")
        self.write(f"{self.port}/link_layer", "Ethernet")
        for index, (gid, version) in enumerate(((LINK_LOCAL, "IB/RoCE v1"), (LINK_LOCAL, "RoCE v2"), (ROUTABLE, "IB/RoCE v1"),
                                                (ROUTABLE, "RoCE v2"))):
            self.gid(index, gid, version)
        self.write(f"{self.port}/gids/4", EMPTY)  # its attributes cannot be read
        for side in ("np", "rp"):
            self.write(f"sys/class/net/eth2/ecn/roce_{side}/enable/3", "1")
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05")
        self.write("proc/self/limits", "Max locked memory         unlimited            unlimited            bytes")

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")

    def gid(self, index, gid, version):
        self.write(f"{self.port}/gids/{index}", gid)
        self.write(f"{self.port}/gid_attrs/types/{index}", version)
        self.write(f"{self.port}/gid_attrs/ndevs/{index}", "eth2")

    def diagnose(self, **variables):
        env = {"PATH": os.environ["PATH"], **variables}
        return subprocess.run(["sh", SCRIPT, self.root], env=env, text=True, capture_output=True, timeout=30)

    def assert_found(self, words, **variables):
        done = self.diagnose(**variables)
        self.assertEqual((1, ""), (done.returncode, done.stderr), done.stdout)
        warnings = [line for line in done.stdout.splitlines() if line.startswith(" ! ")]
        self.assertEqual(1, len(warnings), done.stdout)
        self.assertIn(words, warnings[0])

    def test_a_healthy_host(self):
        for variables in ({}, {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_TC": "104"}, {"NCCL_IB_GID_INDEX": "-1", "NCCL_IB_TC": "106"}):
            done = self.diagnose(**variables)
            self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
            self.assertIn("nothing found", done.stdout)

    def test_gids(self):
        self.assert_found("NCCL_IB_GID_INDEX=2 is IB/RoCE v1", NCCL_IB_GID_INDEX="2")
        self.assert_found(f"NCCL_IB_GID_INDEX=1 is RoCE v2 ({LINK_LOCAL})", NCCL_IB_GID_INDEX="1")
        self.assert_found("NCCL_IB_GID_INDEX=4 is empty", NCCL_IB_GID_INDEX="4")
        self.gid(3, ROUTABLE, "IB/RoCE v1")
        self.assert_found("has no RoCE v2 entry with a routable address")

    def test_lossless_priority(self):
        self.assert_found("NCCL_IB_TC=26 is a DSCP", NCCL_IB_TC="26")
        self.write("sys/class/net/eth2/ecn/roce_rp/enable/3", "0")
        self.assert_found("ECN (rp) is off for priority 3")

    def test_gpudirect_and_limits(self):
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15")
        self.assert_found("neither nvidia-peermem nor DMA-BUF")
        self.write("sys/module/nvidia_peermem/version", "550.54.15")
        self.assertEqual(0, self.diagnose().returncode)
        self.write("proc/self/limits", "Max locked memory         8388608              8388608              bytes")
        self.assert_found("locked memory is limited to 8388608 bytes")


if __name__ == "__main__":
    unittest.main()
