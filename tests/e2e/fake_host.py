"""A host of its own for a test: a network and a mount namespace whose interfaces look like ports of a NIC, with a peer that
answers for their DCB (tests/dcb_peer). What changes them are the system's own `dcb` and `ip`."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from harness import PROGRAM, environment

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dcb_peer"))
import peer  # noqa: E402

TOOLS = ("unshare", "nsenter", "ip", "dcb")
# What is below the program's eyes: interfaces as the kernel shows them, with a driver's name and an RDMA device added.
SET_UP = """
set -e
echo begun
read cable
mount -t sysfs sysfs /sys
if [ "$cable" ]; then ip link add eth2 type veth peer name $cable; fi
for port in {ports}; do
  ip link set $port up
  for file in mtu statistics operstate; do ln -s /sys/devices/virtual/net/$port/$file {root}/class/net/$port/; done
done
mount --bind {root}/class /sys/class
mount --bind {root}/kernel /sys/kernel
if [ -e /proc/sys/kernel/numa_balancing ]; then mount --bind {root}/numa_balancing /proc/sys/kernel/numa_balancing; fi
echo ready
exec sleep 120
"""


def skip_without_namespaces():
    if os.geteuid() != 0:
        raise unittest.SkipTest("a host of its own needs root")
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise unittest.SkipTest(f"{tool} is not installed (Debian: util-linux, iproute2)")
    if subprocess.run(["unshare", "--net", "--mount", "mount", "-t", "sysfs", "sysfs", "/sys"], capture_output=True).returncode != 0:
        raise unittest.SkipTest("no network namespace with its own /sys can be had here")


class FakeHost:
    """Ports of the driver `driver`, in namespaces that live as long as this: eth2 and eth3 with a cable from one to the other; or
    eth2 alone, whose cable's end lies loose until another host is made with this one as its `other`."""

    def __init__(self, folder, driver="mlx5_core", ofed=False, ports=("eth2", "eth3"), other=None):
        self.ports = ports
        self.root = pathlib.Path(folder, "root")
        self.peer = peer.Peer(folder)
        self.state = pathlib.Path(folder, "state")
        self.write("numa_balancing", "0\n")
        for number, port in enumerate(ports):
            device = f"mlx5_{number}"
            pci = self.root / "devices" / f"0000:{3 + 2 * number}d:00.0"
            (self.root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (self.root / "class/net" / port).mkdir(parents=True)
            pci.mkdir(parents=True)
            (self.root / "class/net" / port / "device").symlink_to(pci)
            (pci / "driver").symlink_to(self.root / "drivers" / driver)
            self.write(f"kernel/debug/mlx5/{pci.name}/cc_params/np_cnp_dscp", "0\n")
            rdma = f"class/infiniband/{device}/ports/1"
            self.write(f"{rdma}/gids/3", f"0000:0000:0000:0000:0000:ffff:c000:020{number + 1}\n")
            self.write(f"{rdma}/gid_attrs/types/3", "RoCE v2\n")
            self.write(f"{rdma}/gid_attrs/ndevs/3", f"{port}\n")
            self.write(f"kernel/config/rdma_cm/{device}/ports/1/default_roce_tos", "0\n")
            if ofed:
                for side in ("np", "rp"):
                    for priority in range(8):
                        self.write(f"class/net/{port}/ecn/roce_{side}/enable/{priority}", "0\n")
                self.write(f"class/net/{port}/ecn/roce_np/cnp_dscp", "0\n")
                self.write(f"class/net/{port}/ecn/roce_np/cnp_802p_prio", "0\n")
                # What is set in one place is seen in the other.
                (self.root / f"kernel/debug/mlx5/{pci.name}/cc_params/np_cnp_dscp").unlink()
                (self.root / f"kernel/debug/mlx5/{pci.name}/cc_params/np_cnp_dscp").symlink_to(
                    f"/sys/class/net/{port}/ecn/roce_np/cnp_dscp")
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c",
                                        SET_UP.format(root=self.root, ports=" ".join(ports))],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.holder.stdout.readline()
        if other is not None:
            other.inside("ip", "link", "set", "cable", "netns", self.holder.pid, "name", "eth2")
        cable = "" if other is not None else ports[1] if len(ports) == 2 else "cable"
        self.holder.stdin.write(cable + "\n")
        self.holder.stdin.flush()
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
        """Puts a shell script, which finds the program as "$real", where the system has it."""
        real = shutil.copy(shutil.which(name), self.root / f"{name}.real")
        self.write(f"bin/{name}", f"#!/bin/sh\nreal='{real}'\n{script}\n")
        (self.root / "bin" / name).chmod(0o755)
        self.mount(self.root / "bin" / name, shutil.which(name))

    def mlnx_qos(self):
        """Installs tests/dcb_peer/mlnx_qos.py."""
        self.write("local/mlnx_qos", f"#!/bin/sh\nexec '{sys.executable}' -B '{pathlib.Path(peer.__file__).parent}/mlnx_qos.py' \"$@\"\n")
        (self.root / "local/mlnx_qos").chmod(0o755)
        self.mount(self.root / "local", "/usr/local/sbin")

    def mount(self, what, where):
        done = self.inside("mount", "--bind", what, where)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def configure(self, *arguments, **more):
        return self.inside(pathlib.Path(PROGRAM).resolve(), "configure", *arguments, "--state", self.state, **more)

    def everything(self):
        """All that configuring may change."""
        mtu = self.inside("sh", "-c", "cat /sys/devices/virtual/net/eth*/mtu").stdout.split()
        files = {str(path): path.read_text().strip() for path in sorted(self.root.rglob("*")) if path.is_file()
                 and {"ecn", "config", "cc_params"} & set(path.parts)}
        ports = {port: {**self.peer.state(port), "link-flaps": None} for port in self.ports}
        return mtu, files, ports
