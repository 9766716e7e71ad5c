"""The main job, end to end: a tensor-parallel decode over every path, verified."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import QUICK, EndToEnd, decode, environment, run

PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers"
PATHS = ["local", "roce", "tcp", "udp-floor"]


class Decode(EndToEnd):
    def test_two_ranks_over_every_path(self):
        result = decode("--ranks", 2, *QUICK)
        self.assert_verified(result, ranks=2)
        self.assertEqual([entry["path"] for entry in result.report["results"]], PATHS)
        for entry in result.report["results"]:
            self.assertEqual(entry["bytes"], 262144)
            self.assertGreater(entry["p50_us"], 0)
            self.assertLessEqual(entry["p50_us"], entry["p99_us"])
            self.assertLessEqual(entry["p99_us"], entry["max_us"])

    def test_four_ranks(self):
        self.assert_verified(decode("--ranks", 4, *QUICK), ranks=4)

    def test_three_ranks_and_an_odd_size(self):
        """Neither the rank count nor the element count divides evenly."""
        self.assert_verified(decode("--ranks", 3, *QUICK[:-4], "--hidden", 1237, "--batch", 3, "--gap-us", 0), ranks=3)

    def test_every_dtype(self):
        for dtype in ("fp32", "fp16", "bf16"):
            with self.subTest(dtype=dtype):
                self.assert_verified(decode("--ranks", 2, "--dtype", dtype, *QUICK))

    def test_every_algorithm(self):
        for algorithm in ("one-shot", "two-shot"):
            with self.subTest(algorithm=algorithm):
                result = decode("--ranks", 3, "--algorithm", algorithm, *QUICK)
                self.assert_verified(result, ranks=3)
                self.assertIn(algorithm, result.report["algorithm"])

    def test_a_planted_wrong_slot_is_caught(self):
        # The bug is planted in the second message of a sequence, which one-shot does not have.
        result = decode("--ranks", 2, "--plant-wrong-slot", 5, "--algorithm", "two-shot", *QUICK)
        self.assertNotEqual(result.code, 0, result)
        self.assertFalse(result.report["verified"], result.report)
        self.assertGreater(result.report["mismatches"], 0)

    def test_a_bug_that_cannot_be_planted_is_refused(self):
        result = decode("--ranks", 2, "--plant-wrong-slot", 5, "--algorithm", "one-shot", *QUICK)
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("--algorithm two-shot", result.err)

    def test_packets_of_the_packet_path_are_counted(self):
        result = decode("--ranks", 2, *QUICK)
        # 8 all-reduces of 256 KiB, both ranks: at least 2 x 64 packets of 4 KiB each.
        self.assertGreaterEqual(self.path(result, "roce")["packets"], 8 * 2 * 64)

    def test_ranks_of_a_launcher(self):
        """The environment of torchrun: this process group is the job, nothing is started locally."""
        ranks = []
        for rank in range(2):
            env = environment(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=29611)
            ranks.append(subprocess.Popen([os.environ["TENSORWIRE_BIN"], "bench", "decode", *QUICK], env=env, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        outputs = [rank.communicate(timeout=60) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertIn("p50 us", outputs[0][0])
        self.assertNotIn("p50 us", outputs[1][0])


class Sweep(EndToEnd):
    def test_all_reduce_sweep(self):
        result = run("bench", "allreduce", "--ranks", 2, "--min-bytes", "1KiB", "--max-bytes", "64KiB", "--iterations", 5)
        self.assertEqual(result.code, 0, result)
        for size in ("1024", "65536"):
            self.assertIn(size, result.out)


class Capture(EndToEnd):
    def test_a_capture_of_all_reduces_dissects_and_every_icrc_is_right(self):
        with tempfile.TemporaryDirectory() as folder:
            pcap = pathlib.Path(folder, "decode.pcap")
            self.assert_verified(decode("--ranks", 2, "--pcap", pcap, *QUICK))
            for checker in ("check_icrc.py", "check_capture.py"):
                done = subprocess.run([sys.executable, PEERS / checker, pcap], text=True, capture_output=True, timeout=120)
                self.assertEqual(done.returncode, 0, f"{checker}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    unittest.main()
