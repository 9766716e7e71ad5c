"""`tensorwire doctor mesh` over hosts that are namespaces: what is planted between them is named, and nothing else."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from harness import PROGRAM, EndToEnd, environment, run
from namespace_cluster import FIRST_RAIL, Cluster, skip_without_cluster

SLOW = ("tbf", "rate", "160mbit", "burst", "256k", "limit", "64m")
LATE = "delay=100%:10ms"  # what the HCA of a host sends leaves so much later


class MeshTest(EndToEnd):
    HOSTS, RAILS = 4, 1

    @classmethod
    def setUpClass(cls):
        skip_without_cluster()
        cls.cluster = Cluster(cls.HOSTS, cls.RAILS)
        cls.addClassCleanup(cls.cluster.close)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def setUp(self):
        self.cluster.heal()
        self.report = pathlib.Path(self.folder.name, "mesh.json")
        self.report.unlink(missing_ok=True)

    def command(self, seconds=0.1):
        return ["doctor", "mesh", "--devices", self.cluster.devices, "--seconds", seconds]

    def start(self, seconds=0.1, ranks=None, **more):
        return self.cluster.start_ranks(*self.command(seconds), *more.pop("also", ()), ranks=ranks,
                                        only_first=("--json", self.report), **more)

    def mesh(self, **more):
        """(exit status of rank 0, its report, what it printed); all ranks end alike."""
        return self.end(self.start(**more))

    def end(self, jobs, alike=True):
        results = self.cluster.finish(jobs)
        if alike:
            self.assertEqual(1, len({status for status, _, _ in results.values()}), results)
        self.assertTrue(self.report.exists(), results)
        return results[0][0], json.loads(self.report.read_text()), results[0][1]

    def assert_only_blames(self, report, **expected):
        """There are findings, and each is about what was planted."""
        self.assertTrue(report["findings"], report)
        for finding in report["findings"]:
            for key, value in expected.items():
                self.assertEqual(value, finding[key], report["findings"])

    def measured(self, report):
        return {(cell["rail"], cell["from"], cell["to"]) for cell in report["cells"] if "error" not in cell}


class Mesh(MeshTest):
    def test_healthy(self):
        status, report, out = self.mesh()
        self.assertEqual((0, []), (status, report["findings"]), out)
        self.assertEqual(12, len(self.measured(report)), out)
        for cell in report["cells"]:
            self.assertGreater(cell["latency_p50_us"], 0)
            self.assertGreaterEqual(cell["latency_p99_us"], cell["latency_p50_us"])
            self.assertGreater(cell["bandwidth_gb_s"], 0)
        self.assertIn("nothing is out of the ordinary", out)
        self.assertEqual(self.cluster.names, [host["name"] for host in report["hosts"]])
        self.assertIn("on eth1", report["hosts"][0]["ends"][0]["path"])

    def test_a_host_that_sends_slowly(self):
        self.cluster.shape(2, FIRST_RAIL, *SLOW)
        status, report, out = self.mesh()
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, trouble="bandwidth", scope="host", hosts=["gpu03"], way="sending")
        self.assertLess(report["findings"][0]["measured"], 0.03)
        self.assertIn("BAD host gpu03: bandwidth", out)

    def test_a_host_that_is_far_away(self):
        status, report, out = self.mesh(env=lambda rank: environment(**({"TENSORWIRE_FAULTS": LATE} if rank == 1 else {})))
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, scope="host", hosts=["gpu02"])
        latency = next(finding for finding in report["findings"] if finding["trouble"] == "latency")
        self.assertGreater(latency["measured"], 4_900)

    def test_a_pair_that_does_not_reach_each_other(self):
        self.cluster.lose_way(0, 3, FIRST_RAIL)
        status, report, out = self.mesh()
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, trouble="unreached", scope="pair", hosts=["gpu01", "gpu04"], way="both")
        self.assertIn("gpu01 <-> gpu04: writes fail", out)
        self.assertEqual(10, len(self.measured(report)), out)

    def test_a_host_without_its_cable(self):
        for host in (0, 1, 3):
            self.cluster.lose_way(host, 2, FIRST_RAIL)
        status, report, out = self.mesh()
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, trouble="unreached", scope="host", hosts=["gpu03"])
        self.assertEqual(6, len(self.measured(report)), out)

    def test_a_host_that_never_comes(self):
        status, report, out = self.mesh(ranks=(0, 1, 3), also=("--wait", "4s"))
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, trouble="absent", hosts=["rank 2"])
        self.assertIn("host rank 2 took no part: it did not come within 4s", out)
        self.assertEqual(6, len(self.measured(report)), out)

    def test_a_host_that_dies_on_the_way(self):
        jobs = self.start(seconds=0.5)
        time.sleep(2)
        jobs[2].kill()
        status, report, out = self.end(jobs, alike=False)
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, trouble="absent", hosts=["gpu03"])
        self.assertIn("its process died", out)
        self.assertLessEqual({(0, a, b) for a in ("gpu01", "gpu02", "gpu04") for b in ("gpu01", "gpu02", "gpu04") if a != b},
                             self.measured(report), out)

    def test_a_host_that_stops_on_the_way(self):
        jobs = self.start(seconds=0.5)
        time.sleep(2)
        # nsenter became the program
        jobs[1].send_signal(signal.SIGSTOP)
        try:
            results = self.cluster.finish({rank: job for rank, job in jobs.items() if rank != 1})
        finally:
            jobs[1].kill()
            jobs[1].communicate()
        status, _, out = results[0]
        self.assertEqual(1, status, results)
        report = json.loads(self.report.read_text())
        self.assert_only_blames(report, trouble="absent", hosts=["gpu02"])
        self.assertLessEqual({(0, a, b) for a in ("gpu01", "gpu03", "gpu04") for b in ("gpu01", "gpu03", "gpu04") if a != b},
                             self.measured(report), out)

    def test_interrupted_it_tells_what_it_has(self):
        jobs = self.start(seconds=1)
        time.sleep(3)
        jobs[0].send_signal(signal.SIGINT)
        started = time.monotonic()
        status, report, out = self.end(jobs, alike=False)
        self.assertLess(time.monotonic() - started, 15)
        self.assertEqual((1, True), (status, report["interrupted"]), out)
        self.assertIn("interrupted", out)

    def test_the_lines_for_the_other_hosts(self):
        """What --hosts prints is what starts the others."""
        program = os.path.abspath(PROGRAM)
        hosts = ",".join([self.cluster.address(0), *self.cluster.names[1:]])
        first = self.cluster.start(0, [program, *self.command(), "--hosts", hosts, "--json", self.report])
        lines = []
        while len(lines) < 3:
            line = first.stderr.readline()
            self.assertTrue(line, "rank 0 ended")
            if "$ tensorwire" in line:
                lines.append(line.strip())
        jobs = {0: first}
        for line in lines:
            name, _, command = line.partition("$ ")
            host = self.cluster.names.index(name)
            jobs[host] = self.cluster.start(host, ["sh", "-c", command.replace("tensorwire", f"exec {program}", 1)])
        status, report, out = self.end(jobs)
        self.assertEqual((0, 12), (status, len(self.measured(report))), out)

    def test_who_does_not_know_the_secret_stays_out(self):
        jobs = self.start(also=("--wait", "5s"),
                          env=lambda rank: environment(TENSORWIRE_SECRET="guess" if rank == 3 else "the right one"))
        results = self.cluster.finish(jobs)
        self.assertEqual(2, results[3][0], results)
        self.assertIn("the shared secret is wrong", results[3][2])
        self.assertEqual(1, results[0][0], results)
        self.assertIn("rank 3 took no part", results[0][1])
        self.assertNotIn("the right one", "".join(out + err for _, out, err in results.values()))


class MeshRails(MeshTest):
    HOSTS, RAILS = 3, 2

    def test_healthy(self):
        status, report, out = self.mesh()
        self.assertEqual((0, []), (status, report["findings"]), out)
        self.assertEqual((2, 12), (report["rails"], len(self.measured(report))), out)

    def test_a_cable(self):
        self.cluster.shape(1, FIRST_RAIL + 1, *SLOW)
        self.cluster.on_switch("tc", "qdisc", "replace", "dev", f"gpu02e{FIRST_RAIL + 1}", "root", *SLOW)
        try:
            status, report, out = self.mesh()
        finally:
            self.cluster.on_switch("tc", "qdisc", "del", "dev", f"gpu02e{FIRST_RAIL + 1}", "root")
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, scope="cable", hosts=["gpu02"], rail=1, way="both")
        self.assertIn("cable of gpu02 soft3 (eth2) (rail 1)", out)

    def test_a_rail(self):
        for host in range(3):
            self.cluster.shape(host, FIRST_RAIL, *SLOW)
        status, report, out = self.mesh()
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, scope="rail", rail=0)

    def test_a_device_that_is_down(self):
        self.cluster.on(2, "ip", "link", "set", "eth2", "down")
        try:
            status, report, out = self.mesh()
        finally:
            self.cluster.on(2, "ip", "link", "set", "eth2", "up")
        self.assertEqual(1, status, out)
        self.assert_only_blames(report, trouble="device", hosts=["gpu03"], rail=1)
        self.assertEqual(8, len(self.measured(report)), out)


class MeshFlags(EndToEnd):
    def test_nobody_says_which_hosts(self):
        result = run("doctor", "mesh")
        self.assertEqual(2, result.code, result)
        self.assert_one_clear_line(result, "nobody says which hosts take part", "--hosts")

    def test_one_rank_is_no_mesh(self):
        result = run("doctor", "mesh", "--rank", 0, "--world-size", 1, "--master-addr", "127.0.0.1")
        self.assertEqual(2, result.code, result)
        self.assert_one_clear_line(result, "one rank")

    def test_rank_0_that_is_not_there(self):
        result = run("doctor", "mesh", "--rank", 1, "--world-size", 2, "--master-addr", "127.0.0.1", "--master-port", 29461,
                     "--wait", "1s")
        self.assertEqual(2, result.code, result)
        self.assert_one_clear_line(result, "rank 0 was not there within 1s")

    def test_ranks_of_this_machine(self):
        result = run("doctor", "mesh", "--ranks", 3, "--seconds", "0.05", "--color", "always")
        self.assertIn(result.code, (0, 1), result)
        self.assertIn("(rank 2)", result.out)
        self.assertIn("\033[3", result.out)

    def test_environment_of_torchrun(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "mesh.json")
            jobs = [subprocess.Popen([PROGRAM, "doctor", "mesh", "--seconds", "0.05", "--json", str(report)],
                                     env=environment(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2,
                                                     MASTER_ADDR="127.0.0.1", MASTER_PORT=29463), stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True) for rank in range(2)]
            said = [job.communicate(timeout=60) for job in jobs]
            self.assertEqual(2, len(json.loads(report.read_text())["cells"]), said)
            self.assertNotIn("mesh of", said[1][0])


if __name__ == "__main__":
    unittest.main()
