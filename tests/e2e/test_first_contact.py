"""`tensorwire first-contact` over hosts that are namespaces: every step, the archive, and what must not be in it."""
import json
import os
import pathlib
import signal
import tarfile
import tempfile
import time
import unittest

from harness import EndToEnd, environment, run
from namespace_cluster import FIRST_RAIL, Cluster, skip_without_cluster

SECRET = "do-not-tell-anybody"
TOKEN = "hf_0123456789abcdef"
STEPS = ["doctor", "mesh", "gpudirect", "all-reduce", "NCCL"]


class Archive:
    def __init__(self, path):
        self.files = {}
        with tarfile.open(path) as tar:
            for member in tar.getmembers():
                assert (member.uid, member.gid) == (0, 0), member
                if member.isfile():
                    self.files[member.name.split("/", 1)[1]] = tar.extractfile(member).read().decode()

    def json(self, name):
        return json.loads(self.files[name])


class FirstContact(EndToEnd):
    @classmethod
    def setUpClass(cls):
        skip_without_cluster()
        cls.cluster = Cluster(3)
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        self.cluster.heal()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "kit.tar.gz"

    def start(self, *more, **options):
        return self.cluster.start_ranks("first-contact", "--devices", self.cluster.devices, "--seconds", "0.1", "--max-bytes", "16KiB", *more,
                                        only_first=("-o", self.path), env=lambda rank: environment(
                                            TENSORWIRE_SECRET=SECRET, HF_TOKEN=TOKEN, NCCL_COMM_ID="gpu01:4444",
                                            NCCL_TOPO_FILE=f"/etc/{TOKEN}"), **options)

    def assert_nothing_private(self, archive, real_names=False):
        show = self.cluster.start(0, ["ip", "link"])
        links, _ = show.communicate(timeout=10)
        macs = [line.split()[1] for line in links.splitlines() if "link/ether" in line]
        self.assertTrue(macs)
        private = [SECRET, TOKEN, *macs]
        if not real_names:
            private += [*self.cluster.names, *(self.cluster.address(host, net) for host in range(3) for net in range(2))]
        for name, text in archive.files.items():
            for word in private:
                self.assertNotIn(word, name)
                self.assertNotIn(word, text, f"{name}: {word}")

    def test_all_steps(self):
        results = self.cluster.finish(self.start())
        self.assertEqual(1, len({status for status, _, _ in results.values()}), results)
        archive = Archive(self.path)
        self.assert_nothing_private(archive)
        summary = archive.json("summary.json")
        self.assertEqual(STEPS, [step["name"] for step in summary["steps"]])
        self.assertEqual(["host0", "host1", "host2"], [rank["host"] for rank in summary["ranks"]])
        by_name = {step["name"]: step for step in summary["steps"]}
        self.assertEqual("fine", by_name["mesh"]["outcome"], results)
        self.assertEqual("fine", by_name["all-reduce"]["outcome"], results)
        self.assertEqual(3, len(archive.json("mesh.json")["hosts"]))
        self.assertEqual(6, len(archive.json("mesh.json")["cells"]))
        for host in ("host0", "host1", "host2"):
            self.assertIn("tensorwire host recording", archive.files[f"hosts/{host}/tensorwire-host.txt"])
            self.assertIn("NCCL_COMM_ID=host0:4444", archive.files[f"hosts/{host}/tensorwire-host.txt"])
        sweep = archive.json("allreduce.json")
        self.assertEqual(3, sweep["ranks"])
        self.assertEqual({"roce", "tcp"}, {row["path"] for row in sweep["results"]})
        self.assertEqual(0, sum(row["wrong"] for row in sweep["results"]))
        self.assertIn("gpu01 is host0 in the archive", results[0][1])
        self.assertEqual(["kit.tar.gz"], os.listdir(self.folder))
        if not pathlib.Path("/dev/nvidiactl").exists():
            self.assertEqual(("not here", "not here"), (by_name["gpudirect"]["outcome"], by_name["NCCL"]["outcome"]))
            self.assertIn("no GPU on host", by_name["gpudirect"]["line"])
            self.assertEqual(0, results[0][0], results)

    def test_a_recording_gives_its_verdict_again(self):
        results = self.cluster.finish(self.start("--real-names"))
        archive = Archive(self.path)
        self.assert_nothing_private(archive, real_names=True)
        name = "hosts/gpu02/tensorwire-host.txt"
        self.assertIn(name, archive.files, results)
        (self.folder / "tensorwire-host.txt").write_text(archive.files[name])
        again = run("doctor", "--root", self.folder, "--json")
        self.assertEqual(archive.json("hosts/gpu02/doctor.json"), json.loads(again.out))

    def test_a_lost_host_and_a_lost_way(self):
        """A step that goes wrong is told, and the next one goes on."""
        self.cluster.lose_way(0, 1, FIRST_RAIL)
        results = self.cluster.finish(self.start("--wait", "5s", ranks=(0, 1)))
        self.assertEqual(1, results[0][0], results)
        archive = Archive(self.path)
        steps = {step["name"]: step for step in archive.json("summary.json")["steps"]}
        self.assertEqual("BAD", steps["mesh"]["outcome"])
        self.assertEqual("FAILED", steps["all-reduce"]["outcome"], steps)
        self.assertIn("NCCL", steps)
        self.assertIn("it did not come within 5s", archive.json("summary.json")["ranks"][2]["lost"])
        self.assert_nothing_private(archive)

    def test_interrupted_it_packs_what_it_has(self):
        jobs = self.start()
        self.assertIn("archive", jobs[0].stdout.readline())
        while "1/5 doctor" not in jobs[0].stdout.readline():
            pass
        time.sleep(0.5)
        jobs[0].send_signal(signal.SIGINT)
        results = self.cluster.finish(jobs)
        self.assertEqual(1, results[0][0], results)
        archive = Archive(self.path)
        summary = archive.json("summary.json")
        self.assertTrue(summary["interrupted"])
        self.assertEqual(STEPS, [step["name"] for step in summary["steps"]])
        self.assertIn("hosts/host0/doctor.json", archive.files)
        self.assertEqual("FAILED", summary["steps"][-1]["outcome"])
        self.assert_nothing_private(archive)


class FirstContactFlags(EndToEnd):
    def test_an_archive_that_is_there_already(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "kit.tar.gz")
            path.write_text("precious")
            result = run("first-contact", "--rank", 0, "--world-size", 2, "--master-addr", "127.0.0.1", "-o", path)
            self.assertEqual(2, result.code, result)
            self.assert_one_clear_line(result, "is there already")
            self.assertEqual("precious", path.read_text())

    def test_nobody_says_which_hosts(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("first-contact", "-o", f"{folder}/kit.tar.gz")
            self.assertEqual(2, result.code, result)
            self.assert_one_clear_line(result, "nobody says which hosts take part")
            self.assertEqual([], os.listdir(folder))


if __name__ == "__main__":
    unittest.main()
