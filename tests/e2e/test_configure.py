"""`tensorwire configure` on a host of its own: a network and a mount namespace in which eth2 and eth3 look like ports of a NIC,
with a peer that answers for their DCB. What changes them are the system's own `dcb` and `ip`."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from harness import PROGRAM, environment, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dcb_peer"))
import peer  # noqa: E402

TOOLS = ("unshare", "nsenter", "ip", "dcb")
LOSSLESS = 1 << 3
# What is below the program's eyes: interfaces as the kernel shows them, with a driver's name and an RDMA device added.
SET_UP = """
set -e
mount -t sysfs sysfs /sys
ip link add eth2 type veth peer name eth3
for port in eth2 eth3; do
  ip link set $port up
  for file in mtu statistics operstate; do ln -s /sys/devices/virtual/net/$port/$file {root}/class/net/$port/; done
done
mount --bind {root}/class /sys/class
mount --bind {root}/kernel /sys/kernel
if [ -e /proc/sys/kernel/numa_balancing ]; then mount --bind {root}/numa_balancing /proc/sys/kernel/numa_balancing; fi
echo ready
exec sleep 120
"""


class FakeHost:
    """Two ports of the driver `driver`, in namespaces that live as long as this."""

    def __init__(self, folder, driver="mlx5_core", ofed=False):
        self.root = pathlib.Path(folder, "root")
        self.peer = peer.Peer(folder)
        self.state = pathlib.Path(folder, "state")
        self.write("numa_balancing", "0\n")
        for number, port in enumerate(("eth2", "eth3")):
            device = f"mlx5_{number}"
            (self.root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (self.root / "class/net" / port / "device").mkdir(parents=True)
            (self.root / "class/net" / port / "device/driver").symlink_to(self.root / "drivers" / driver)
            self.write(f"class/infiniband/{device}/ports/1/gid_attrs/ndevs/3", f"{port}\n")
            self.write(f"kernel/config/rdma_cm/{device}/ports/1/default_roce_tos", "0\n")
            if ofed:
                for side in ("np", "rp"):
                    for priority in range(8):
                        self.write(f"class/net/{port}/ecn/roce_{side}/enable/{priority}", "0\n")
                self.write(f"class/net/{port}/ecn/roce_np/cnp_dscp", "0\n")
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", SET_UP.format(root=self.root)],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise AssertionError(self.holder.communicate(timeout=10)[1])

    def close(self):
        self.holder.kill()
        self.holder.communicate()

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def read(self, path):
        return (self.root / path).read_text().strip()

    def joined(self, command, more):
        """What subprocess needs to run a command in these namespaces."""
        return (["nsenter", "--target", str(self.holder.pid), "--net", "--mount", *map(str, command)],
                dict(env={**environment(), **self.peer.environment(), **more}, text=True, stdin=subprocess.DEVNULL))

    def inside(self, *command, **more):
        words, options = self.joined(command, more)
        return subprocess.run(words, capture_output=True, timeout=30, **options)

    def program_in_place_of(self, name, script):
        """Puts a shell script, which finds the program as "$real", where the system has it or, where it has none, in /usr/sbin."""
        found = shutil.which(name)
        (self.root / "bin").mkdir(exist_ok=True)
        if found:
            shutil.copy(found, self.root / "bin" / f"{name}.real")
        self.write(f"bin/{name}", f"#!/bin/sh\nreal='{self.root}/bin/{name}.real'\n{script}")
        (self.root / "bin" / name).chmod(0o755)
        done = self.inside("mount", "--bind", self.root / "bin" / name, found)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def configure(self, *arguments, **more):
        return self.inside(pathlib.Path(PROGRAM).resolve(), "configure", *arguments, "--state", self.state, **more)

    def everything(self):
        """All that configuring may change."""
        mtu = self.inside("sh", "-c", "cat /sys/devices/virtual/net/eth*/mtu").stdout.split()
        files = {str(path): path.read_text().strip() for path in sorted(self.root.rglob("*")) if path.is_file()
                 and ("ecn" in path.parts or "config" in path.parts)}
        ports = {port: {**self.peer.state(port), "link-flaps": None} for port in ("eth2", "eth3")}
        return mtu, files, ports


@unittest.skipIf(os.geteuid() != 0, "a host of its own needs root")
class Configure(unittest.TestCase):
    def setUp(self):
        for tool in TOOLS:
            if shutil.which(tool) is None:
                self.skipTest(f"{tool} is not installed (Debian: util-linux, iproute2)")
        if subprocess.run(["unshare", "--net", "--mount", "mount", "-t", "sysfs", "sysfs", "/sys"],
                          capture_output=True).returncode != 0:
            self.skipTest("no network namespace with its own /sys can be had here")

    def host(self, **how):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        host = FakeHost(folder.name, **how)
        self.addCleanup(host.close)
        return host

    def mlx5(self, **port):
        host = self.host()
        host.peer.add("eth2", **port)
        host.peer.add("eth3", **port)
        return host

    def assert_ran(self, done, code=0):
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout

    def assert_one_line(self, done, *words):
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def assert_lossless(self, host, port="eth2"):
        state = host.peer.state(port)
        self.assertEqual(f"8 {LOSSLESS} 7", state["pfc"])
        self.assertIn((peer.DSCP, 26, 3), state["app"])
        self.assertIn((peer.DSCP, 48, 6), state["app"])

    def test_the_default_shows_and_changes_nothing(self):
        host = self.mlx5()
        before = host.everything()
        out = self.assert_ran(host.configure("eth2"))
        for word in ("PFC: none -> 3", "dcb pfc set dev eth2 prio-pfc all:off 3:on", "MTU: 1500 -> 4200",
                     "dcb app replace dev eth2 dscp-prio 26:3 48:6", "nothing was changed"):
            self.assertIn(word, out)
        self.assertEqual(before, host.everything())
        self.assert_ran(host.configure("eth2", "--check"), 2)
        report = json.loads(self.assert_ran(host.configure("eth2", "--json")))
        self.assertEqual("PFC", report[0]["changes"][-1]["part"], "PFC comes last")

    def test_applied_read_back_and_not_twice(self):
        host = self.mlx5()
        self.assertIn("read back", self.assert_ran(host.configure("eth2", "eth3", "--apply", "--no-timer", "--mtu", 9000)))
        self.assert_lossless(host)
        self.assert_lossless(host, "eth3")
        self.assertEqual("104", host.read("kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"))
        self.assertEqual("1", host.peer.state("eth2")["link-flaps"])
        after = host.everything()
        self.assertIn("nothing to change", self.assert_ran(host.configure("eth2", "eth3", "--apply", "--mtu", 9000)))
        self.assertEqual("1", host.peer.state("eth2")["link-flaps"], "an equal PFC is not set again: it flaps the link")
        self.assertEqual(after, host.everything())
        self.assert_ran(host.configure("verify", "eth2", "--mtu", 9000))

    def test_rollback_brings_back_what_was_there(self):
        for port in ({}, {"pfc": 1, "apps": [(peer.DSCP, d, d >> 3) for d in range(64)], "prio_tc": (0, 0, 1, 0, 0, 0, 0, 0)}):
            host = self.mlx5(**port)
            before = host.everything()
            self.assert_ran(host.configure("eth2", "--apply", "--no-timer"))
            self.assert_lossless(host)
            self.assert_ran(host.configure("rollback", "eth2"))
            self.assertEqual(before, host.everything())
            self.assert_one_line(host.configure("rollback", "eth2"), "no change of it is on record")

    def test_every_step_that_fails_leaves_nothing_behind(self):
        failures = 0
        for step in range(1, 7):
            host = self.mlx5(apps=[(peer.DSCP, 26, 0)], prio_tc=(0,) * 8)
            before = host.everything()
            host.peer.path.write_text(host.peer.path.read_text().replace("fail-at 0", f"fail-at {step}"))
            done = host.configure("eth2", "eth3", "--apply", "--no-timer")
            if done.returncode == 0:  # the failure did no harm: an entry was to be deleted that was replaced already
                self.assert_lossless(host, "eth3")
                continue
            failures += 1
            self.assertEqual(before, host.everything(), f"step {step}: {done.stderr}")
            self.assertFalse(any(host.state.glob("*.undo.sh")), "no record of a change that is not there")
        self.assertGreaterEqual(failures, 4)

    def test_what_is_not_there_afterwards_is_taken_back(self):
        host = self.mlx5(driver="deaf")
        before = host.everything()
        self.assert_one_line(host.configure("eth2", "--apply", "--no-timer"), "after it was set to", "Everything was set back")
        self.assertEqual(before, host.everything())

    def test_nobody_confirms_because_the_shell_is_dead(self):
        host = self.mlx5()
        before = host.everything()
        shell = f"'{pathlib.Path(PROGRAM).resolve()}' configure eth2 --apply --timer 2 --state '{host.state}'; kill -KILL $$"
        self.assertIn("applied", host.inside("sh", "-c", shell).stdout)
        self.assert_lossless(host)
        wait_for(lambda: host.everything() == before, 20, "the guard's rollback")

    def test_ended_in_the_middle(self):
        """Killed, it is taken back by its guard; asked to end, it goes on to the end."""
        for signal, stays in ((9, False), (2, True), (15, True)):
            host = self.mlx5()
            before = host.everything()
            host.program_in_place_of("dcb", '"$real" "$@"; status=$?; if [ "$2" = replace ]; then sleep 1; fi; exit $status')
            words, options = host.joined([pathlib.Path(PROGRAM).resolve(), "configure", "eth2", "--apply", "--no-timer", "--state",
                                          host.state], {})
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
            wait_for(lambda: (peer.DSCP, 26, 3) in host.peer.state("eth2")["app"], 20, "the change of the application table")
            process.send_signal(signal)
            self.assertEqual(-signal, process.wait(timeout=20))
            if stays:
                self.assert_lossless(host)
            else:
                self.assertNotEqual(before, host.everything())
                wait_for(lambda: host.everything() == before, 20, "the guard's rollback")

    def test_what_is_confirmed_stays(self):
        host = self.mlx5()
        self.assert_ran(host.configure("eth2", "--apply", "--timer", 1))
        self.assert_ran(host.configure("confirm"))
        time.sleep(2)
        self.assert_lossless(host)
        self.assert_one_line(host.configure("confirm"), "no change waits")

    def test_the_session_and_the_default_route_are_protected(self):
        host = self.mlx5()
        host.inside("sh", "-c", "ip addr add 192.0.2.1/24 dev eth2; ip addr add 198.51.100.1/24 dev eth3; "
                                "ip route add default via 198.51.100.9")
        before = host.everything()
        self.assert_one_line(host.configure("eth2", "--apply", SSH_CONNECTION="192.0.2.7 40000 192.0.2.1 22"),
                             "this session comes over it", "--force")
        self.assert_one_line(host.configure("eth3", "--apply"), "the default route leads over it")
        self.assert_one_line(host.configure("eth2", "eth3", "--apply"), "the default route leads over it")
        self.assertEqual(before, host.everything())
        self.assert_ran(host.configure("eth3", "--apply", "--force", "--no-timer"))
        self.assert_lossless(host, "eth3")

    def test_ports_that_are_none(self):
        host = self.host(driver="e1000e")
        host.peer.add("eth2")
        self.assert_one_line(host.configure("eth2", "--apply"), "e1000e is configured is not known")
        self.assert_one_line(host.configure("eth9"), "there is no such interface", "ip link")
        self.assert_one_line(host.configure(), "no interface is named")

    def test_broadcom(self):
        host = self.host(driver="bnxt_en")
        host.peer.add("eth2", driver="bnxt", prio_tc=(0,) * 8)
        self.assert_ran(host.configure("eth2", "--apply", "--no-timer"))
        apps = host.peer.state("eth2")["app"]
        self.assertEqual([(3, 4791, 3), (peer.DSCP, 26, 3), (peer.DSCP, 48, 7)], sorted(apps))

    def test_persistent_files(self):
        host = self.mlx5()
        self.assert_ran(host.configure("eth2", "eth3", "--persist", "--etc", host.root / "etc", "--mtu", 9000))
        service = host.read("etc/systemd/system/tensorwire-configure@.service")
        self.assertIn("configure %i --apply --force --no-timer --mtu 9000", service)
        rules = host.read("etc/udev/rules.d/90-tensorwire-configure.rules").splitlines()
        self.assertEqual(2, len(rules))
        self.assertIn('NAME=="eth3"', rules[1])


class Script(unittest.TestCase):
    SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/configure_roce.sh"

    def test_the_one_in_the_repository_is_what_the_program_prints(self):
        done = subprocess.run([PROGRAM, "configure", "--emit-script"], text=True, capture_output=True, timeout=20)
        self.assertEqual(self.SCRIPT.read_text(), done.stdout)


if __name__ == "__main__":
    unittest.main()
