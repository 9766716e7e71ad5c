"""`tensorwire doctor watch --prove` between two hosts with a cable between them (fake_host.py): the soft HCA's own packets, sorted and
counted at each end as the port's settings say (tests/dcb_peer/count_packets)."""
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

from fake_host import FakeHost, skip_without_namespaces
from harness import PROGRAM, wait_for

COUNT_PACKETS = os.environ.get("COUNT_PACKETS", "build/release/tests/dcb_peer/count_packets")
ADDRESSES = ("192.0.2.1", "192.0.2.2")
BURST = 16 << 20
PRIORITIES = 8


class CountingHost(FakeHost):
    def __init__(self, folder, address, other=None):
        super().__init__(folder, ports=("eth2",), other=other)
        self.peer.add("eth2")
        self.folder = pathlib.Path(folder, "counters")
        self.folder.mkdir()
        self.counter = None
        self.inside("ip", "addr", "add", f"{address}/24", "dev", "eth2")

    def count(self):
        words, options = self.joined([COUNT_PACKETS, "eth2", self.folder / "eth2"], {})
        self.counter = subprocess.Popen(words, stdout=subprocess.PIPE, **options)
        if self.counter.stdout.readline() != "ready\n":
            raise AssertionError("packets are not counted")

    def counted(self):
        """(sent bytes by priority, received bytes by priority)"""
        words = memoryview((self.folder / "eth2").read_bytes()).cast("Q")
        if words[2 * PRIORITIES]:
            raise AssertionError(f"{words[2 * PRIORITIES]} packets were not counted: this machine is too slow")
        return list(words[:PRIORITIES]), list(words[PRIORITIES:2 * PRIORITIES])

    def close(self):
        if self.counter:
            self.counter.kill()
            self.counter.communicate()
        super().close()


class Prove(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        skip_without_namespaces()
        folders = [tempfile.TemporaryDirectory() for _ in ADDRESSES]
        for folder in folders:
            cls.addClassCleanup(folder.cleanup)
        cls.hosts = []
        for folder, address in zip(folders, ADDRESSES):
            cls.hosts.append(CountingHost(folder.name, address, other=cls.hosts[0] if cls.hosts else None))
            cls.addClassCleanup(cls.hosts[-1].close)
        for host in cls.hosts:
            wait_for(lambda: host.inside("cat", "/sys/class/net/eth2/operstate").stdout == "up\n", 20, "the link")
            host.count()

    def setUp(self):
        for host in self.hosts:
            host.peer.clear()
            host.peer.add("eth2")

    def configured(self):
        for host in self.hosts:
            done = host.configure("eth2", "--apply", "--no-timer")
            self.assertEqual(0, done.returncode, done.stderr)

    def prove(self, *more, counters=True):
        """(exit status, what rank 0 says); both ranks end with the same status."""
        ranks = []
        for rank, host in enumerate(self.hosts):
            words, options = host.joined(
                [pathlib.Path(PROGRAM).resolve(), "doctor", "watch", "--prove", "--rank", rank, "--world-size", 2, "--master-addr",
                 ADDRESSES[0], "--interval", "300ms", "--burst", f"{BURST}B", "--device", "soft", *(more if rank == 0 else ())],
                {"TENSORWIRE_GSO": "off", **({"DCB_PEER_COUNTERS": str(host.folder)} if counters else {})})
            ranks.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options))
        results = [(*rank.communicate(timeout=60), rank.returncode) for rank in ranks]
        self.assertEqual(results[0][2], results[1][2], results)
        self.assertNotIn("tensorwire:", results[0][1] + results[1][1])
        return results[0][2], results[0][0]

    def test_configured_hosts(self):
        self.configured()
        before = [host.counted() for host in self.hosts]
        status, out = self.prove("--json")
        self.assertEqual(0, status, out)
        report = json.loads(out)
        for burst in report["bursts"]:
            self.assertIn("data is classified into priority 3 at both hosts, DSCP survives: proven", burst["conclusion"])
            for end in (burst["sender"], burst["receiver"]):
                self.assertEqual((3, True), (end["priority"], end["lossless"]))
                self.assertLess(abs(end["bytes"] - burst["expected_bytes"]), 0.05 * burst["expected_bytes"])
        for host, (sent, received) in zip(self.hosts, before):
            now = host.counted()
            self.assertGreater(now[0][3] - sent[3], BURST)
            self.assertGreater(now[1][3] - received[3], BURST)
        self.assertIsNone(report["switch"])

    def test_unconfigured_hosts(self):
        status, out = self.prove()
        self.assertEqual(2, status, out)
        self.assertEqual(2, out.count("data is classified into priority 0 at both hosts"), out)
        self.assertIn("it is NOT lossless at", out)
        self.assertIn("switch queue: unknown", out)

    def test_one_host_does_not_sort_by_dscp(self):
        self.configured()
        self.hosts[1].peer.clear()
        self.hosts[1].peer.add("eth2", pfc=1 << 3)
        status, out = self.prove()
        self.assertEqual(2, status, out)
        self.assertIn("data leaves in priority 3 and arrives in priority 0", out)
        self.assertIn("does not sort by DSCP (trust pcp)", out)
        self.assertIn("data leaves in priority 0 and arrives in priority 3", out)

    def test_a_host_without_counters_says_so(self):
        for host in self.hosts:
            host.peer.clear()
            host.peer.add("eth2", driver="bnxt", pfc=1 << 3)  # of mlx5 there are always some
        status, out = self.prove(counters=False)
        self.assertEqual(3, status, out)
        self.assertEqual(2, out.count("class unknown"), out)
        self.assertIn("the driver counts no bytes by priority", out)

    def test_what_the_switch_says(self):
        """The cable has no queues: what each end received stands for what the switch's port towards it sent."""
        self.configured()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        dump = pathlib.Path(folder.name, "dump.txt")
        over = threading.Event()

        def write():
            lines = ["     Port    TxQ    Counter/pkts    Counter/bytes    Drop/pkts    Drop/bytes",
                     "---------  -----  --------------  ---------------  -----------  ------------"]
            for number, host in enumerate(self.hosts):
                for queue, count in enumerate(host.counted()[1]):
                    lines.append(f"Ethernet{4 * number}    UC{queue}    {count // 4096:,}    {count:,}    0    0")
            dump.write_text("\n".join(lines) + "\n")

        def keep_writing():
            while not over.wait(0.5):
                write()

        write()
        writer = threading.Thread(target=keep_writing)
        writer.start()
        try:
            status, out = self.prove("--switch", dump)
        finally:
            over.set()
            writer.join()
        self.assertEqual(0, status, out)
        for port in ("Ethernet0", "Ethernet4"):
            self.assertRegex(out, rf"switch queue: UC3 of {port} carried 1[67]\.\d MB")


if __name__ == "__main__":
    unittest.main()
