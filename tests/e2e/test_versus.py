"""The comparison with other libraries (bench/versus): what it checks, not how fast anything is."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import PROGRAM, EndToEnd, environment

DRIVER = pathlib.Path(__file__).resolve().parents[2] / "bench/versus/run.py"
PROGRAMS = pathlib.Path(PROGRAM).resolve().parent
QUICK = ["--sizes", "1KiB,100KiB", "--budget-s", "1", "--iterations", "3", "--rounds", "2"]
sys.path.insert(0, str(DRIVER.parent))
import counters  # noqa: E402
import ways  # noqa: E402


def compare(names, *arguments):
    """(what run.py did, its report)"""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        done = subprocess.run([sys.executable, DRIVER, "--programs", PROGRAMS, "--ways", ",".join(names), *QUICK, "--json", report,
                               "--plot", pathlib.Path(folder, "plot.svg"), *arguments],
                              env=environment(), text=True, capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        return done, json.loads(report.read_text()) if report.exists() else None


class Versus(EndToEnd):
    def setUp(self):
        self.names = [name for name, way in ways.WAYS.items() if way.missing(PROGRAMS) is None]

    def need_openmpi(self):
        if "OpenMPI tcp" not in self.names:
            self.skipTest(ways.WAYS["OpenMPI tcp"].missing(PROGRAMS))

    def test_every_way_is_measured_and_proves_its_path(self):
        done, report = compare(self.names, "--ranks", "2,3")
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        self.assertEqual(report["failures"], [])
        self.assertEqual(len(report["results"]), len(self.names) * 2 * 2)
        for row in report["results"]:
            with self.subTest(way=row["way"], ranks=row["ranks"], size=row["bytes"]):
                self.assertEqual(row["wrong"], 0)
                self.assertEqual((row["rounds"], row["samples"], row["operations"]), (2, 6, 8))
                self.assertLessEqual(row["p50_us"], row["p99_us"])
                count, wire = row["counters"], ways.WAYS[row["way"]].wire
                if wire == "tcp":
                    self.assertGreater(count["tcp_segments_sent"], row["operations"])
                if wire == "udp":
                    self.assertGreater(count["udp_datagrams_sent"], row["operations"])
                    self.assertGreaterEqual(count["port_xmit_packets"], row["operations"] * row["ranks"])
                if wire != "memory":
                    self.assertGreaterEqual(count["lo_bytes"], counters.least_bytes(row["ranks"], row["bytes"], row["operations"]))
                if row["way"] == "mapped memory":
                    self.assertIn("mapped memory", row["path"])
                    self.assertLess(count["local_rx_pulled_bytes"] + count["local_rx_inline_bytes"], row["bytes"])
                if row["way"] == "same-host link":
                    self.assertNotIn("mapped memory", row["path"])
                    self.assertIn("same-host link", row["path"])
                    self.assertGreaterEqual(count["messages_sent"], row["operations"] * row["ranks"])

    def assert_caught(self, way, others):
        done, report = compare([way, *others], "--plant-in", way, "--plant-wrong", "1")
        self.assertEqual(done.returncode, 1, f"{done.stdout}\n{done.stderr}")
        self.assertIn(f"2 ranks, {way}: 1 wrong elements in all-reduces of 1 KiB", done.stderr)
        self.assertEqual(len(report["failures"]), 1)
        self.assertEqual({row["way"] for row in report["results"]}, set(others))  # it is out, the others go on

    def test_a_wrong_element_of_ours_is_caught(self):
        self.assert_caught("same-host link", ["RoCEv2 packets"])

    def test_a_wrong_element_of_theirs_is_caught(self):
        self.need_openmpi()
        self.assert_caught("OpenMPI tcp", ["same-host link"])

    def test_a_rank_that_cannot_start_is_told(self):
        done, report = compare(["RoCEv2 packets"], "--programs", "/nonexistent")
        self.assertIn("RoCEv2 packets is left out", done.stderr)
        self.assertIn("RoCEv2 packets", report["left_out"])


class PathProof(unittest.TestCase):
    """Counters that speak against a path are seen."""

    def problem(self, wire, kernel, own=None):
        way = ways.Way("x", "y", wire)
        return counters.problem(way, 2, 1 << 20, 64, kernel, own or {})

    def test_bytes_where_none_should_be(self):
        self.assertIsNone(self.problem("memory", {"lo_bytes": 1000}))
        self.assertIn("should go through memory", self.problem("memory", {"lo_bytes": 130 << 20}))

    def test_no_bytes_where_all_should_be(self):
        self.assertIn("are the least", self.problem("tcp", {"lo_bytes": 1000, "tcp_segments_sent": 5}))
        self.assertIsNone(self.problem("tcp", {"lo_bytes": 130 << 20, "tcp_segments_sent": 5}))
        self.assertIn("no TCP segment", self.problem("tcp", {"lo_bytes": 130 << 20, "tcp_segments_sent": 0}))
        self.assertIn("no datagram", self.problem("udp", {"lo_bytes": 130 << 20, "udp_datagrams_sent": 0}))

    def test_bytes_through_the_hca_that_should_stay_in_mapped_memory(self):
        def problem(size, pulled):
            return counters.problem(ways.WAYS["mapped memory"], 2, size, 64, {}, {"local_rx_pulled_bytes": pulled})

        self.assertIsNone(problem(1 << 20, 1000))
        self.assertIn("through the HCA", problem(1 << 20, 100 << 20))
        self.assertIsNone(problem(4 << 20, 400 << 20))

    def test_devices_and_links_that_sent_nothing(self):
        self.assertIn("sent 3 packets", self.problem("udp", {}, {"port_xmit_packets": 3}))
        self.assertIn("sent 3 messages", self.problem("memory", {}, {"messages_sent": 3}))


if __name__ == "__main__":
    unittest.main()
