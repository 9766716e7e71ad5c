"""The machine that judges: QEMU with Debian's kernel and rdma_rxe, joined to this network namespace by a tap device.

Everything in it comes from kernel.py's initramfs; it has no disk. The host speaks to it over TCP: a shell on one port,
the test program's server on another. It is emulated, never virtualised, so that it runs wherever QEMU does.
"""
import contextlib
import pathlib
import re
import socket
import subprocess
import time

import kernel

TAP = "tap0"
HOST, GUEST = "10.77.0.1", "10.77.0.2"
HOST6, GUEST6 = "fd77::1", "fd77::2"
MTU = 4200  # room for a path MTU of 4096
SERVER_PORT, SHELL_PORT = 7000, 7001
TC = "/bin/tc"  # by its path: busybox's shell prefers its own, which knows less
BOOT_BOUND = 240  # seconds; 10 on a quiet machine
# Instructions that are slow to emulate are hidden from the kernel, which then takes plainer ones.
CPU = "max,la57=off,-erms,-fsrm,-pclmulqdq"

INIT = f"""#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/bin
ln -s /bin/modprobe /sbin/modprobe
for module in {' '.join(kernel.MODULES)}; do modprobe $module || echo "no $module"; done
ip link set lo up
ip link set eth0 mtu {MTU} up
ip addr add {GUEST}/24 dev eth0
ip -6 addr add {GUEST6}/64 dev eth0
rdma link add rxe0 type rxe netdev eth0
{TC} qdisc add dev eth0 clsact
rxe_peer serve {SERVER_PORT} &
nc -ll -p {SHELL_PORT} -e /bin/sh
"""


class Failure(Exception):
    """Something that must hold does not."""


def make_tap():
    """The host's end of the wire, in this network namespace."""
    try:
        for command in ("link set lo up", f"tuntap add {TAP} mode tap", f"addr add {HOST}/24 dev {TAP}",
                        f"addr add {HOST6}/64 dev {TAP} nodad",
                        f"link set {TAP} mtu {MTU} up"):
            kernel.run(kernel.required("ip", "iproute2"), *command.split())
    except subprocess.CalledProcessError as error:
        raise kernel.Unavailable(f"no tap device can be made: {error.stderr.decode().strip()}") from None


class Machine:
    def __init__(self, folder, program, doctor):
        """`doctor`: the tensorwire program, for tests/rxe/doctor.py."""
        qemu = kernel.required("qemu-system-x86_64", "qemu-system-x86")
        programs = {name: kernel.required(name, "iproute2") for name in ("tc", "rdma")}
        image, modules = kernel.prepare_kernel(folder)
        kernel.write_initramfs(folder / "initramfs", modules, INIT, {**programs, "rxe_peer": program}, at_home=[doctor])
        self.log = folder / "console.log"
        began = time.monotonic()
        with open(self.log, "wb") as console:
            self.process = subprocess.Popen(
                [qemu, "-M", "q35", "-cpu", CPU, "-accel", "tcg,thread=multi", "-smp", "2", "-m", "512", "-nodefaults",
                 "-no-reboot", "-display", "none", "-serial", "stdio", "-kernel", image, "-initrd", folder / "initramfs",
                 "-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on",
                 "-netdev", f"tap,id=wire,ifname={TAP},script=no,downscript=no,vhost=off",
                 "-device", "virtio-net-pci,netdev=wire,mac=52:54:00:77:00:02,csum=off,guest_csum=off,romfile="],
                stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)
        self._await_shell()
        self.boot_seconds = time.monotonic() - began

    def _await_shell(self):
        deadline = time.monotonic() + BOOT_BOUND
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failure(f"QEMU ended: exit {self.process.returncode}\n{self.console()}")
            with contextlib.suppress(OSError):
                ready = self.shell("ls /sys/class/infiniband; netstat -ltn")
                if "rxe0" not in ready:
                    raise Failure(f"the machine has no rxe0:\n{self.console()}")
                if f":{SERVER_PORT} " in ready:
                    return
            time.sleep(0.2)
        self.stop()
        raise Failure(f"the machine did not start within {BOOT_BOUND} s:\n{self.console()}")

    def console(self):
        return self.log.read_text(errors="replace")[-4000:]

    def shell(self, script):
        """What `script` prints in the machine; OSError when there is no shell."""
        with socket.create_connection((GUEST, SHELL_PORT), timeout=20) as connection:
            connection.sendall(f"exec 2>&1\n{script}\necho status $?\nexit\n".encode())
            output = b""
            while received := connection.recv(65536):
                output += received
        text, _, status = output.decode().rpartition("status ")
        if status.strip() != "0":
            raise Failure(f"in the machine, {script!r} failed:\n{output.decode()}")
        return text

    def drop(self, direction):
        """Drops 1 % of the packets, chosen at random, that the machine sends or receives. (A filter that drops what it
        sends would tell rxe so, which then sends again at once; netem tells nobody.)"""
        self.shell({"sent": f"{TC} qdisc add dev eth0 root netem loss 1%",
                    "received": f"{TC} filter add dev eth0 ingress protocol ip u32 match ip protocol 17 0xff "
                                "match ip dport 4791 0xffff action gact ok random netrand drop 100"}[direction])

    def drop_no_more(self, direction):
        """How many packets were dropped."""
        shown = self.shell({"sent": f"{TC} -s qdisc show dev eth0 root; {TC} qdisc del dev eth0 root",
                            "received": f"{TC} -s filter show dev eth0 ingress; {TC} filter del dev eth0 ingress"}[direction])
        return sum(map(int, re.findall(r"\(dropped (\d+)", shown)))

    def stop(self):
        self.process.kill()
        self.process.wait()
