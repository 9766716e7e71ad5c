"""`tensorwire soft -- PROGRAM`: the user-space HCA's devices in /sys/class/infiniband, for that program alone; and what NCCL is told."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest

from harness import PROGRAM, EndToEnd, environment

PROGRAM_PATH = os.path.abspath(PROGRAM)
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
LOOK = """
import json, os, pathlib
root = pathlib.Path("/sys/class/infiniband")
found = {}
for device in sorted(root.iterdir()) if root.exists() else []:
    files = {str(p.relative_to(device)): p.read_text() for p in device.rglob("*") if p.is_file() and "device" not in p.parts}
    found[device.name] = {"files": files, "pci": os.path.realpath(device / "device") if (device / "device").exists() else None}
print(json.dumps({"devices": found, "classes": sorted(os.listdir("/sys/class")), "namespace": os.stat("/proc/self/ns/mnt").st_ino,
                  "nccl": {k: v for k, v in os.environ.items() if k.startswith("NCCL_")}}))
"""


def soft(*command, before=(), options=(), **variables):
    """(exit status, stdout, stderr) of `before... tensorwire soft options... -- command...`"""
    clean = {name: text for name, text in environment(**variables).items() if not name.startswith("NCCL_") or name in variables}
    done = subprocess.run([*before, PROGRAM_PATH, "soft", *options, "--", *command], env=clean, text=True, capture_output=True,
                          timeout=60, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def gid_of(ipv4):
    digits = socket.inet_aton(ipv4).hex()
    return f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}\n"


def skip_without(command, why):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise unittest.SkipTest(f"{why}: {done.stderr.strip()}")


def skip_without_mounts():
    if os.geteuid() != 0:
        raise unittest.SkipTest("a mount namespace needs root")
    for tool in ("unshare", "ip", "setpriv"):
        if shutil.which(tool) is None:
            raise unittest.SkipTest(f"{tool} is not installed (Debian: util-linux, iproute2)")
    skip_without(["unshare", "--mount", "mount", "-t", "tmpfs", "x", "/sys/class"], "no mount namespace can be had here")


class SoftSysfs(EndToEnd):
    @classmethod
    def setUpClass(cls):
        skip_without_mounts()

    def look(self, **how):
        code, out, err = soft(sys.executable, "-c", LOOK, **how)
        self.assertEqual(0, code, err)
        return json.loads(out)

    def test_a_program_reads_the_devices_with_their_gids(self):
        seen = self.look()
        loopback = seen["devices"]["soft0"]["files"]
        self.assertEqual("1: CA\n", loopback["node_type"])
        self.assertEqual("4: ACTIVE\n", loopback["ports/1/state"])
        self.assertEqual("Ethernet\n", loopback["ports/1/link_layer"])
        self.assertEqual((gid_of("127.0.0.1"), "RoCE v2\n", "lo\n"),
                         tuple(loopback[f"ports/1/{name}/1"] for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs")))
        self.assertEqual("", loopback["ports/1/gid_attrs/types/0"])

    def test_the_gid_layout_of_the_hca_is_that_of_the_files(self):
        files = self.look(TENSORWIRE_GID_LAYOUT="connectx")["devices"]["soft0"]["files"]
        self.assertEqual(["IB/RoCE v1\n", "RoCE v2\n"], [files[f"ports/1/gid_attrs/types/{index}"] for index in (2, 3)])

    def test_a_device_stands_on_a_pci_device(self):
        known = [os.path.realpath(entry) for entry in pathlib.Path("/sys/bus/pci/devices").glob("*")]
        if not known:
            self.skipTest("this machine shows no PCI devices")
        for name, device in self.look()["devices"].items():
            self.assertIn(device["pci"], known, name)

    def test_everything_else_in_sys_class_stays(self):
        self.assertEqual(sorted({*os.listdir("/sys/class"), "infiniband"}), self.look()["classes"])
        code, out, err = soft("cat", "/sys/class/net/lo/ifindex")
        self.assertEqual((0, "1\n"), (code, out), err)

    def test_devices_of_the_kernel_stay(self):
        prepare = ("mount -t tmpfs x /sys/class && mkdir -p /sys/class/infiniband /sys/class/net && "
                   "ln -s ../../devices/virtual/net/lo /sys/class/infiniband/mlx5_0 && exec \"$@\"")
        code, out, err = soft("sh", "-c", "cat /sys/class/infiniband/mlx5_0/ifindex; ls /sys/class/infiniband",
                              before=("unshare", "--mount", "sh", "-c", prepare, "sh"))
        self.assertEqual(0, code, err)
        self.assertEqual("1", out.split()[0])
        self.assertIn("mlx5_0", out.split())
        self.assertIn("soft0", out.split())

    def test_nothing_reaches_the_parent(self):
        before = pathlib.Path("/proc/self/mountinfo").read_text()
        existed = os.path.exists("/sys/class/infiniband/soft0")
        child = subprocess.Popen([PROGRAM_PATH, "soft", "--", "sh", "-c", "ls /sys/class/infiniband; exec sleep 60"],
                                 env=environment(), stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual("soft0\n", child.stdout.readline())
            self.assertEqual(before, pathlib.Path("/proc/self/mountinfo").read_text())
            self.assertEqual(existed, os.path.exists("/sys/class/infiniband/soft0"))
        finally:
            child.kill()
            child.communicate()
        self.assertEqual(before, pathlib.Path("/proc/self/mountinfo").read_text())

    def test_nothing_reaches_a_parent_whose_mounts_are_shared(self):
        inner = "\"$@\"; test ! -e /sys/class/infiniband/soft0"
        code, out, err = soft("ls", "/sys/class/infiniband/soft0/node_type",
                              before=("unshare", "--mount", "--propagation", "shared", "sh", "-c", inner, "sh"))
        self.assertEqual((0, "/sys/class/infiniband/soft0/node_type\n"), (code, out), err)

    def test_mounts_outside_sys_are_shared_as_before(self):
        inner = "mount --make-shared -t tmpfs x /mnt && \"$@\" && test -e /mnt/inside/file"
        code, _, err = soft("sh", "-c", "mkdir /mnt/inside && mount -t tmpfs y /mnt/inside && touch /mnt/inside/file",
                            before=("unshare", "--mount", "sh", "-c", inner, "sh"))
        self.assertEqual(0, code, err)

    def test_what_the_program_starts_sees_them_too_and_a_view_in_a_view_is_one(self):
        again = self.look(before=(PROGRAM_PATH, "soft", "--"))
        self.assertEqual(self.look()["devices"], again["devices"])

    def test_it_can_be_left_off(self):
        own = os.stat("/proc/self/ns/mnt").st_ino
        self.assertEqual(own, self.look(options=("--no-sysfs",))["namespace"])
        self.assertNotEqual(own, self.look()["namespace"])

    def test_status_input_process_and_signals_are_the_programs(self):
        self.assertEqual(7, soft("sh", "-c", "exit 7")[0])
        done = subprocess.run([PROGRAM_PATH, "soft", "--", "cat"], input="word", text=True, capture_output=True, timeout=60,
                              env=environment())
        self.assertEqual("word", done.stdout)
        child = subprocess.Popen([PROGRAM_PATH, "soft", "--", "sh", "-c", "echo $$; exec sleep 60"], env=environment(),
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(f"{child.pid}\n", child.stdout.readline())
        child.terminate()
        child.communicate(timeout=10)
        self.assertEqual(-signal.SIGTERM, child.returncode)

    def test_without_the_right_to_mount_the_program_runs_and_one_line_says_so(self):
        before = ("setpriv", "--bounding-set", "-sys_admin")
        self.assertEqual((0, "ran\n", ""), soft("echo", "ran", before=before))
        code, _, err = soft("sh", "-c", "exit 7", before=before, TENSORWIRE_LOG="info")
        self.assertEqual(7, code)
        lines = [line for line in err.splitlines() if "will not find" in line]
        self.assertEqual(1, len(lines), err)
        self.assertIn("EPERM", lines[0])

    def test_without_root(self):
        skip_without([*NOBODY, PROGRAM_PATH, "--version"], "nobody may not run the program where it lies")
        skip_without([*NOBODY, "unshare", "--user", "--mount", "true"], "this kernel gives nobody no user namespace")
        code, out, err = soft("sh", "-c", "id -u; cat /sys/class/infiniband/soft0/ports/1/gid_attrs/types/1; ls /sys/class/infiniband",
                              before=NOBODY)
        self.assertEqual((0, ["65534", "RoCE v2", *sorted(self.look()["devices"])]), (code, out.splitlines()), err)


class SoftSysfsHosts(EndToEnd):
    """Two network namespaces that a veth pair joins."""

    def setUp(self):
        skip_without_mounts()
        self.names = [f"tws{os.getpid()}-{host}" for host in range(2)]
        for name in self.names:
            skip_without(["ip", "netns", "add", name], "network namespaces are not allowed here")
            self.addCleanup(subprocess.run, ["ip", "netns", "delete", name], capture_output=True)
        skip_without(["ip", "-n", self.names[0], "link", "add", "tw0", "type", "veth", "peer", "name", "tw1", "netns",
                      self.names[1]], "veth pairs are not allowed here")
        for host, name in enumerate(self.names):
            for words in (("link", "set", "lo", "up"), ("address", "add", f"10.78.0.{host + 1}/24", "dev", f"tw{host}"),
                          ("link", "set", f"tw{host}", "up")):
                subprocess.run(["ip", "-n", name, *words], check=True, capture_output=True)

    def assert_is_host(self, host, out):
        seen = json.loads(out)
        self.assertEqual(["soft0", "soft1"], sorted(seen["devices"]))
        files = seen["devices"]["soft1"]["files"]
        self.assertEqual((gid_of(f"10.78.0.{host + 1}"), f"tw{host}\n"),
                         (files["ports/1/gids/1"], files["ports/1/gid_attrs/ndevs/1"]))
        self.assertEqual({"NCCL_IB_HCA": "=soft1", "NCCL_IB_GID_INDEX": "1", "NCCL_GIN_TYPE": "2"}, seen["nccl"])

    def test_each_host_has_its_own_devices(self):
        for host, name in enumerate(self.names):
            code, out, err = soft(sys.executable, "-c", LOOK, before=("ip", "netns", "exec", name))
            self.assertEqual(0, code, err)
            self.assert_is_host(host, out)

    def test_started_outside_and_again_inside(self):
        code, out, err = soft("ip", "netns", "exec", self.names[1], "env", "-u", "NCCL_IB_HCA", PROGRAM_PATH, "soft", "--",
                              sys.executable, "-c", LOOK)
        self.assertEqual(0, code, err)
        self.assert_is_host(1, out)


class SoftNccl(EndToEnd):
    SHOW = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('NCCL_')}))"

    def variables(self, **own):
        code, out, err = soft(sys.executable, "-c", self.SHOW, TENSORWIRE_LOG="info", **own)
        self.assertEqual(0, code, err)
        return json.loads(out), {line.split("set ")[1].split(":")[0] for line in err.splitlines() if re.search(r"set NCCL_\w+=", line)}

    def test_what_is_set_is_said(self):
        variables, said = self.variables()
        self.assertEqual({"NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_GIN_TYPE"}, set(variables))
        self.assertEqual({f"{name}={value}" for name, value in variables.items()}, said)
        self.assertRegex(variables["NCCL_IB_HCA"], r"^=soft\d+(,soft\d+)*$")

    def test_what_the_user_set_is_kept_also_when_it_is_empty(self):
        variables, said = self.variables(NCCL_IB_HCA="mlx5_0", NCCL_GIN_TYPE="")
        self.assertEqual({"NCCL_IB_HCA": "mlx5_0", "NCCL_GIN_TYPE": "", "NCCL_IB_GID_INDEX": "1"}, variables)
        self.assertEqual({"NCCL_IB_GID_INDEX=1"}, said)

    def test_the_index_is_that_of_the_layout(self):
        self.assertEqual("3", self.variables(TENSORWIRE_GID_LAYOUT="connectx")[0]["NCCL_IB_GID_INDEX"])


if __name__ == "__main__":
    unittest.main()
