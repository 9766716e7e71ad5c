"""`tensorwire configure` on a host of its own (fake_host.py)."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from fake_host import FakeHost, peer, skip_without_namespaces
from harness import PROGRAM, wait_for

LOSSLESS = 1 << 3


class Configure(unittest.TestCase):
    def setUp(self):
        skip_without_namespaces()

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
        tsa, share, classes = (list(map(int, state[key].split())) for key in ("tc-tsa", "tc-bw", "prio-tc"))
        self.assertEqual((peer.ETS, 50), (tsa[classes[3]], share[classes[3]]))
        self.assertEqual(peer.STRICT, tsa[classes[6]])
        self.assertEqual(100, sum(s for s, t in zip(share, tsa) if t == peer.ETS))

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
        host = self.mlx5(apps=[(peer.DSCP, 26, 0)], prio_tc=(0,) * 8)
        before = host.everything()
        failures = 0
        for step in range(1, 7):
            host.peer.path.write_text(host.peer.path.read_text().replace("fail-at 0", f"fail-at {step}"))
            done = host.configure("eth2", "eth3", "--apply", "--no-timer")
            if done.returncode == 0:  # the failure did no harm: an entry was to be deleted that was replaced already
                self.assert_lossless(host, "eth3")
                host.peer.path.write_text(re.sub("fail-at [0-9]+", "fail-at 0", host.peer.path.read_text()))
                self.assert_ran(host.configure("rollback", "eth2", "eth3"))
                continue
            failures += 1
            self.assert_one_line(done, "Everything was set back")
            self.assertEqual(before, host.everything(), f"step {step}")
            self.assertFalse(any(host.state.glob("*.undo.sh")), "no record of a change that is not there")
        self.assertGreaterEqual(failures, 4)

    def test_what_is_not_there_afterwards_is_taken_back(self):
        host = self.mlx5(driver="deaf")
        before = host.everything()
        self.assert_one_line(host.configure("eth2", "--apply", "--no-timer"), "after it was set to", "Everything was set back")
        self.assertEqual(before, host.everything())

    def test_what_the_nic_does_not_do_is_taken_back(self):
        """The kernel says that PFC is on, the NIC's counters say that it is not."""
        host = self.mlx5(driver="forgetful")
        before = host.everything()
        self.assert_one_line(host.configure("eth2", "--apply", "--no-timer"),
                             "eth2: PFC was set to 3, and ethtool -S eth2 says priorities with counters of pauses: none",
                             "Everything was set back")
        self.assertEqual(before, host.everything())

    def test_it_says_how_each_part_was_read_back(self):
        host = self.mlx5()
        out = self.assert_ran(host.configure("eth2", "--apply", "--no-timer"))
        for line in ("eth2: MTU: read in sysfs, set by netlink", "eth2: PFC: read by netlink, as dcb set it; also by ethtool -S eth2",
                     "eth2: traffic classes: read by netlink, as dcb set it", "eth2: RDMA-CM ToS: read in the file that was written"):
            self.assertIn(line + "\n", out)
        host = self.ofed(dcbx=peer.IEEE)
        out = self.assert_ran(host.configure("eth2", "--apply", "--no-timer"))
        for line in ("eth2: PFC: read by netlink, set by mlnx_qos; also by ethtool -S eth2",
                     "eth2: DSCP of CNPs: read in the file that was written; also by /sys/kernel/debug/mlx5/0000:3d:00.0/cc_params/np_cnp_dscp"):
            self.assertIn(line + "\n", out)

    def test_shares_of_a_device_with_four_classes(self):
        host = self.mlx5(ets_cap=4, prio_tc=(0,) * 8)
        before = host.everything()
        self.assert_ran(host.configure("eth2", "--apply", "--no-timer", "--share", 60))
        state = host.peer.state("eth2")
        self.assertEqual(("0 0 0 1 0 0 2 0", "40 60 0 0 0 0 0 0"), (state["prio-tc"], state["tc-bw"]))
        self.assert_ran(host.configure("verify", "eth2", "--share", 60))
        self.assert_ran(host.configure("verify", "eth2"), 2)
        self.assert_ran(host.configure("rollback", "eth2"))
        self.assertEqual(before, host.everything())

    def test_ports_in_one_subnet_keep_their_addresses_to_themselves(self):
        host = self.mlx5()
        host.inside("sh", "-c", "ip addr add 192.0.2.1/24 dev eth2; ip addr add 192.0.2.2/24 dev eth3; "
                                "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/eth2/rp_filter")
        settings = [f"/proc/sys/net/ipv4/conf/eth2/{name}" for name in ("arp_ignore", "arp_announce", "rp_filter")]
        before = host.inside("cat", *settings).stdout
        out = self.assert_ran(host.configure("eth2", "--apply", "--no-timer"))
        self.assertEqual("1\n2\n2\n", host.inside("cat", *settings).stdout)
        self.assertIn("rp_filter: read in the file that was written; also by ip -4 netconf show dev eth2\n", out)
        self.assertIn("each needs a routing table of its own", out)
        self.assert_ran(host.configure("verify", "eth2"))
        self.assert_ran(host.configure("rollback", "eth2"))
        self.assertEqual(before, host.inside("cat", *settings).stdout)
        host.inside("ip", "addr", "del", "192.0.2.2/24", "dev", "eth3")
        self.assertNotIn("arp_ignore", self.assert_ran(host.configure("eth2")))

    def test_mlnx_qos_is_run_only_for_what_the_kernel_does_not_say(self):
        host = self.mlx5()
        host.write("local/mlnx_qos", f"#!/bin/sh\necho run >>'{host.root}/ran'\nexit 1\n")
        (host.root / "local/mlnx_qos").chmod(0o755)
        host.mount(host.root / "local", "/usr/local/sbin")
        self.assert_ran(host.configure("eth2"))
        self.assertFalse((host.root / "ran").exists())
        host.peer.clear()
        host.peer.add("eth2", driver="virtual")
        self.assert_ran(host.configure("eth2"), 1)
        self.assertTrue((host.root / "ran").exists())

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
        shell = f"'{pathlib.Path(PROGRAM).resolve()}' configure eth2 --apply --state '{host.state}' 2>&1 | cat"
        sudo = host.inside("sh", "-c", f'env -u SSH_CONNECTION sh -c "{shell}"', SSH_CONNECTION="192.0.2.7 40000 192.0.2.1 22")
        self.assertIn("this session comes over it", sudo.stdout)
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

    def ofed(self, **port):
        host = self.host(ofed=True)
        for name in host.ports:
            host.peer.add(name, **port)
        host.mlnx_qos()
        return host

    def test_mlnx_ofed(self):
        host = self.ofed(dcbx=peer.IEEE)
        before = host.everything()
        self.assert_ran(host.configure("eth2", "eth3", "--apply", "--no-timer"))
        for port in host.ports:
            self.assert_lossless(host, port)
            self.assertEqual(64, len(host.peer.state(port)["app"]))
            self.assertEqual(str(peer.HOST | peer.IEEE), host.peer.state(port)["dcbx"])
            for file, value in (("roce_np/enable/3", "1"), ("roce_rp/enable/3", "1"), ("roce_np/cnp_dscp", "48")):
                self.assertEqual(value, host.read(f"class/net/{port}/ecn/{file}"))
        self.assertIn("nothing to change", self.assert_ran(host.configure("eth2", "eth3", "--apply")))
        printed = host.inside("mlnx_qos", "-i", "eth2").stdout
        for words in ("DCBX mode: OS controlled", "Priority trust state: dscp", "\tenabled     0   0   0   1   0   0   0   0"):
            self.assertIn(words, printed)
        self.assert_ran(host.configure("rollback", "eth2", "eth3"))
        self.assertEqual(before, host.everything())

    def test_mlnx_ofed_commands_that_fail(self):
        host = self.ofed(dcbx=peer.IEEE, prio_tc=(0,) * 8)
        before = host.everything()
        for step in (1, 6):
            host.peer.path.write_text(host.peer.path.read_text().replace("fail-at 0", f"fail-at {step}"))
            self.assert_one_line(host.configure("eth2", "eth3", "--apply", "--no-timer"), "mlnx_qos -i eth2", "Everything was set back")
            self.assertEqual(before, host.everything())

    def test_persistent_files(self):
        host = self.mlx5()
        options = ("--etc", host.root / "etc", "--mtu", 9000, "--priority", 4, "--dscp", 34)
        self.assert_ran(host.configure("eth2", "--persist", *options))
        self.assert_ran(host.configure("eth3", "--persist", "--etc", host.root / "etc"))
        service = host.root / "etc/systemd/system/tensorwire-configure-eth2.service"
        self.assertIn('configure eth2 --apply --force --no-timer --priority 4 --dscp 34 --mtu 9000\n', service.read_text())
        rules = sorted((host.root / "etc/udev/rules.d").iterdir())
        self.assertEqual([f"90-tensorwire-configure-eth{n}.rules" for n in (2, 3)], [rule.name for rule in rules])
        self.assertIn('NAME=="eth3"', rules[1].read_text())
        if shutil.which("systemd-analyze"):
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(service)], text=True, capture_output=True, timeout=60)
            self.assertEqual((0, ""), (done.returncode, "".join(line for line in done.stderr.splitlines() if "tensorwire" in line)))

    def test_udev_starts_the_service_when_the_interface_appears(self):
        """What the system's own udev makes of the rules: `udevadm test` runs them all for an event, and prints what comes of it."""
        if shutil.which("udevadm") is None:
            self.skipTest("udevadm is not installed (Debian: udev)")
        host = self.mlx5()
        self.assert_ran(host.configure("eth2", "--persist", "--etc", host.root / "etc"))
        rules = host.root / "etc/udev/rules.d"

        def wants(interface):
            event = (f"mount -t tmpfs none /run && mount --bind {rules} /etc/udev/rules.d && "
                     f"exec udevadm test --action=add /sys/devices/virtual/net/{interface}")
            done = host.inside("unshare", "--mount", "sh", "-c", event)
            self.assertIn(f"INTERFACE={interface}", done.stdout, done.stderr)
            return [line for line in done.stdout.splitlines() if "SYSTEMD_WANTS" in line]

        for udev_names_interfaces in (True, False):
            if not udev_names_interfaces:
                (rules / "80-net-setup-link.rules").symlink_to("/dev/null")
            self.assertEqual(["SYSTEMD_WANTS=tensorwire-configure-eth2.service"], wants("eth2"))
            self.assertEqual([], wants("eth3"))

    def test_persistent_files_go_with_the_change(self):
        host = self.mlx5()
        self.assert_ran(host.configure("eth2", "--apply", "--no-timer", "--persist", "--etc", host.root / "etc"))
        self.assertEqual(2, len([path for path in (host.root / "etc").rglob("*") if path.is_file()]))
        self.assert_ran(host.configure("rollback", "eth2"))
        self.assertEqual(0, len([path for path in (host.root / "etc").rglob("*") if path.is_file()]))

    def test_a_recording_is_compared_and_left_alone(self):
        host = self.mlx5()
        recording = host.root / "recording"
        self.assert_ran(host.inside(pathlib.Path(PROGRAM).resolve(), "doctor", "record", recording))
        there = self.assert_ran(host.configure("eth2", "--check"), 2)
        self.assertEqual(there, self.assert_ran(host.configure("eth2", "--check", "--root", recording), 2))
        here = subprocess.run([PROGRAM, "configure", "eth2", "eth3", "--root", recording], text=True, capture_output=True, timeout=20)
        self.assertIn("PFC: none -> 3", self.assert_ran(here))
        self.assert_one_line(host.configure("eth2", "--apply", "--root", recording), "a recording cannot be changed")
        self.assert_one_line(host.configure("eth9", "--root", recording), "there is no such interface")

    def test_under_traffic(self):
        host = self.mlx5()
        host.inside("ip", "addr", "add", "192.0.2.1/24", "dev", "eth2")
        flood = ("import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                 "s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\nprint('ready', flush=True)\n"
                 "while True:\n    for _ in range(50): s.sendto(bytes(1400), ('192.0.2.255', 9))\n    time.sleep(0.005)")
        words, options = host.joined([sys.executable, "-c", flood], {})
        sender = subprocess.Popen(words, stdout=subprocess.PIPE, **options)
        self.addCleanup(lambda: (sender.kill(), sender.communicate()))
        sender.stdout.readline()
        before = host.everything()
        self.assert_one_line(host.configure("eth3", "eth2", "--apply"), "it carries", "takes its link down", "--force")
        self.assertEqual(before, host.everything())
        self.assert_ran(host.configure("eth2", "--apply", "--no-timer", "--force"))
        self.assert_lossless(host)

    def test_what_cannot_be_read_is_not_judged(self):
        host = self.host()
        host.peer.add("eth2", driver="virtual")
        self.assert_ran(host.configure("eth2", "--check"), 1)
        self.assert_one_line(host.configure("eth2", "--apply"), "PFC cannot be read")


class Script(unittest.TestCase):
    SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/configure_roce.sh"

    def test_the_one_in_the_repository_is_what_the_program_prints(self):
        done = subprocess.run([PROGRAM, "configure", "--emit-script"], text=True, capture_output=True, timeout=20)
        self.assertEqual(self.SCRIPT.read_text(), done.stdout)

    def test_it_configures_a_port_without_the_program(self):
        skip_without_namespaces()
        shell = shutil.which("dash") or "sh"
        for driver, ofed, pfc, cnp in (("mlx5_core", False, "mlx5", 6), ("mlx5_core", True, "mlx5", 6), ("bnxt_en", False, "bnxt", 7)):
            with self.subTest(driver=driver, ofed=ofed), tempfile.TemporaryDirectory() as folder:
                host = FakeHost(folder, driver=driver, ofed=ofed)
                self.addCleanup(host.close)
                host.peer.add("eth2", driver=pfc, prio_tc=(0,) * 8)
                if ofed:
                    host.mlnx_qos()
                before = host.peer.state("eth2")
                shown = host.inside(shell, self.SCRIPT, "eth2")
                self.assertEqual((0, before), (shown.returncode, host.peer.state("eth2")), shown.stderr)
                for _ in range(2):
                    done = host.inside(shell, self.SCRIPT, "--apply", "eth2")
                    self.assertEqual((0, ""), (done.returncode, done.stderr))
                state = host.peer.state("eth2")
                self.assertEqual(("8 8 7", "0 1 2 3 4 5 6 7"), (state["pfc"], state["prio-tc"]))
                self.assertLessEqual({(peer.DSCP, 26, 3), (peer.DSCP, 48, cnp)}, set(state["app"]))
                self.assertEqual("104", host.read("kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"))
                self.assertEqual("9000\n", host.inside("cat", "/sys/class/net/eth2/mtu").stdout)
                verdict = host.configure("verify", "eth2")
                self.assertEqual(0, verdict.returncode, verdict.stdout)

    def test_it_stops_at_what_fails(self):
        skip_without_namespaces()
        with tempfile.TemporaryDirectory() as folder:
            host = FakeHost(folder)
            self.addCleanup(host.close)
            host.peer.add("eth2", fail_at=1)
            done = host.inside("sh", self.SCRIPT, "--apply", "eth2")
            self.assertEqual(1, done.returncode)
            self.assertIn('"dcb dcbx set dev eth2 host ieee" failed; what stands above it was done', done.stderr)
            self.assertEqual(("8 0 7", []), (host.peer.state("eth2")["pfc"], host.peer.state("eth2")["app"]))


if __name__ == "__main__":
    unittest.main()
