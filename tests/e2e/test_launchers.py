"""Ranks that somebody else starts: mpirun, torchrun's environment, plain processes, two network namespaces as two hosts."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from harness import PROGRAM, QUICK, EndToEnd, environment

BOUND_S = 90
INSIDE = "TW_TEST_TWO_HOSTS"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
VERIFIED = "right and bit-identical on all ranks"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(command, env):
    return subprocess.Popen([str(word) for word in command], env=env, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def finish_all(processes):
    """[(exit code, stdout, stderr)]; whatever still runs at the bound is killed with all it started."""
    try:
        outputs = [process.communicate(timeout=BOUND_S) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.communicate()
    return [(process.returncode, *output) for process, output in zip(processes, outputs)]


class Launchers(EndToEnd):
    def assert_one_job(self, results):
        for code, out, err in results:
            self.assertEqual(code, 0, f"{out}\n{err}")
        self.assertIn(VERIFIED, results[0][1])
        for _, out, _ in results[1:]:
            self.assertNotIn(VERIFIED, out)  # rank 0 speaks for all

    def test_mpirun(self):
        if shutil.which("mpirun") is None:
            self.skipTest("mpirun is not installed (Debian: openmpi-bin)")
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                job = start(["mpirun", *root, "--oversubscribe", "-n", ranks, PROGRAM, "bench", "decode", "--paths", "local,roce",
                             *QUICK], environment(MASTER_PORT=free_port()))
                self.assert_one_job(finish_all([job]))

    def test_mpirun_passes_a_failure_on(self):
        if shutil.which("mpirun") is None:
            self.skipTest("mpirun is not installed (Debian: openmpi-bin)")
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        job = start(["mpirun", *root, "--oversubscribe", "-n", 2, PROGRAM, "bench", "decode", "--device", "soft99", *QUICK],
                    environment(MASTER_PORT=free_port()))
        (code, out, err), = finish_all([job])
        self.assertNotEqual(code, 0)
        self.assertIn("soft99", out + err)

    def test_environment_of_torchrun(self):
        """Four ranks on what torchrun says are two nodes of two."""
        port = free_port()
        jobs = [start([PROGRAM, "bench", "decode", "--paths", "roce", *QUICK],
                      environment(RANK=rank, LOCAL_RANK=rank % 2, WORLD_SIZE=4, LOCAL_WORLD_SIZE=2, GROUP_RANK=rank // 2,
                                  MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TORCHELASTIC_RUN_ID="test"))
                for rank in range(4)]
        self.assert_one_job(finish_all(jobs))

    def test_plain_processes(self):
        port = free_port()
        jobs = [start([PROGRAM, "bench", "decode", "--paths", "local", "--rank", rank, "--world-size", 3, "--master-addr",
                       "127.0.0.1", "--master-port", port, *QUICK], environment()) for rank in range(3)]
        self.assert_one_job(finish_all(jobs))


def run_two_hosts():
    """In a network namespace of its own: a cable to a second one, a rank at each end. Prints rank 0's report."""
    def ip(words, inside=()):
        subprocess.run([*inside, "ip", *words.split()], check=True)

    other = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", "hostname host1; echo ready; exec sleep 120"],
                             stdout=subprocess.PIPE, text=True)
    try:
        other.stdout.readline()
        inside = ["nsenter", "--target", str(other.pid), "--net", "--uts"]
        subprocess.run(["hostname", "host0"], check=True)
        ip("link set lo up")
        ip("link set lo up", inside)
        ip("link add tw0 type veth peer name tw1")
        ip(f"link set tw1 netns {other.pid}")
        for end, address, where in (("tw0", ADDRESSES[0], ()), ("tw1", ADDRESSES[1], inside)):
            ip(f"link set {end} mtu 9000 up", where)
            ip(f"addr add {address}/24 dev {end}", where)
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "report.json")
            command = [PROGRAM, "bench", "decode", "--paths", "roce", "--world-size", 2, "--master-addr", ADDRESSES[0],
                       "--master-port", 29555, "--device", "soft1", "--json", report, *QUICK]
            results = finish_all([start([*where, *command, "--rank", rank], {**environment(), "TENSORWIRE_LOG": "info"})
                                  for rank, where in enumerate(([], inside))])
            print(json.dumps({"codes": [code for code, _, _ in results], "output": [out + err for _, out, err in results],
                              "report": json.loads(report.read_text()) if report.exists() else None}))
    finally:
        other.kill()
        other.wait()


class TwoHosts(EndToEnd):
    def test_two_network_namespaces(self):
        """Nothing is shared but a cable: no loopback, no abstract sockets, other host names."""
        options = ["--net", "--uts"] if os.geteuid() == 0 else ["--net", "--uts", "--user", "--map-root-user"]
        for tool in ("unshare", "nsenter", "ip"):
            if shutil.which(tool) is None:
                self.skipTest(f"{tool} is not installed (Debian: util-linux, iproute2)")
        if subprocess.run(["unshare", *options, "true"], capture_output=True).returncode != 0:
            self.skipTest("no network namespace can be had here")
        env = {**environment(), INSIDE: "1", "TENSORWIRE_BIN": str(pathlib.Path(PROGRAM).resolve())}
        done = subprocess.run(["unshare", *options, sys.executable, __file__], env=env, text=True, capture_output=True,
                              timeout=BOUND_S + 30)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = json.loads(done.stdout)
        self.assertEqual(job["codes"], [0, 0], job["output"])
        self.assertTrue(job["report"]["verified"], job)
        self.assertIn(VERIFIED, job["output"][0])
        for address, output in zip(ADDRESSES, job["output"]):
            self.assertIn(f"::ffff:{address} on tw", output)  # the GID, and the cable's interface
        roce = next(entry for entry in job["report"]["results"] if entry["path"] == "roce")
        self.assertGreaterEqual(roce["packets"], 8 * 2 * 32)  # 8 all-reduces of 256 KiB, MTU 4096, both ranks


if __name__ == "__main__":
    if INSIDE in os.environ:
        run_two_hosts()
    else:
        unittest.main()
