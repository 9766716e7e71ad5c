#!/usr/bin/env python3
"""RoCEv2 over IPv6 link-local addresses (GID index 0), on a virtual cable in a network namespace of its own.

usage: link_local.py pingpong|all-reduce

Both ends of the cable are in the namespace; a link-local address belongs to its interface, so packets do cross the cable.
The kernel's capture of the cable, super-packets switched off, is dissected by tshark and its ICRCs are checked. Exits 0, 1 with
what went wrong, or 77 where a namespace or a program is missing.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import peers

HERE = pathlib.Path(__file__).parent
SKIPPED = 77
INSIDE = "TW_TEST_INSIDE_NAMESPACE"
ENDS = ("tw0", "tw1")


def enter_own_network():
    """Starts this program anew in a network namespace, as root of a user namespace where need be."""
    options = ["--net"] if os.geteuid() == 0 else ["--net", "--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run(["unshare", *options, "true"], capture_output=True).returncode != 0:
        print("SKIPPED: no network namespace can be had here")
        sys.exit(SKIPPED)
    os.execvpe("unshare", ["unshare", *options, sys.executable, __file__, *sys.argv[1:]], {**os.environ, INSIDE: "1"})


def plug_cable():
    def ip(words):
        subprocess.run(["ip", *words.split()], check=True)

    ip("link set lo up")
    ip("link add tw0 type veth peer name tw1")
    for number, end in enumerate(ENDS):
        ip(f"link set {end} addrgenmode none mtu 9000")
        ip(f"link set {end} gso_max_segs 1 up")  # what the capture sees is what a wire would
        ip(f"addr add 10.9.{number}.1/24 dev {end}")
        ip(f"addr add fe80::{number + 1}/64 dev {end} nodad")


class Capture:
    """Of the kernel, at one end of the cable."""

    def __init__(self, path):
        self.path = path
        self.process = subprocess.Popen(["dumpcap", "-q", "-P", "-i", ENDS[1], "-B", "64", "-f", "udp port 4791", "-w", path],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 20
        while not (path.exists() and path.stat().st_size > 0):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise peers.Failure(f"dumpcap does not capture: {self.process.stderr.read()}")
            time.sleep(0.05)

    def stop(self):
        time.sleep(1)  # packets that are still in its ring
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=20)


def check_capture(path, of_writes):
    for checker in ["check_icrc.py", "check_capture.py"] if of_writes else ["check_icrc.py"]:
        done = subprocess.run([sys.executable, HERE / checker, path], text=True, capture_output=True, timeout=100)
        print(f"{checker}: {done.stdout}{done.stderr}")
        if done.returncode not in (0, SKIPPED):
            raise peers.Failure(f"{checker} found something")
    if b"\x86\xdd" not in path.read_bytes()[40:60]:
        raise peers.Failure("the capture does not begin with IPv6")


def pingpong():
    peers.require("ibv_rc_pingpong")
    options = ["-g", 0, "-n", 200, "-s", 9000, "-m", 4096]
    port = peers.free_port()
    server = peers.start("ibv_rc_pingpong", "-d", "soft1", "-p", port, *options)
    try:
        peers.wait_until_listening(port, server)
        peers.finish(peers.start("ibv_rc_pingpong", "-d", "soft2", "-p", port, *options, "127.0.0.1"), "client")
        output = peers.finish(server, "server")
    finally:
        peers.stop(server)
    peers.expect(output, r"GID fe80::1$", "local link-local GID")
    peers.expect(output, r"GID fe80::2$", "remote link-local GID")
    peers.expect(output, r"^200 iters in ", "result")


def all_reduce():
    program = peers.BUILD / "bin/tensorwire"
    port = peers.free_port()
    command = [program, "bench", "decode", "--paths", "roce", "--gid-index", 0, "--tokens", 1, "--verify-tokens", 1, "--layers", 2,
               "--gap-us", 0, "--world-size", 2, "--master-addr", "127.0.0.1", "--master-port", port]
    ranks = [subprocess.Popen([str(word) for word in [*command, "--rank", rank, "--device", f"soft{rank + 1}"]], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
             for rank in range(2)]
    try:
        for number, rank in enumerate(ranks):
            peers.finish(rank, f"rank {number}")
    finally:
        for rank in ranks:
            peers.stop(rank)


# What runs, and whether its capture is of WRITEs with immediate, as check_capture.py wants it.
CASES = {"pingpong": (pingpong, False), "all-reduce": (all_reduce, True)}


def main(arguments):
    if len(arguments) != 1 or arguments[0] not in CASES:
        print(__doc__)
        return 2
    if INSIDE not in os.environ:
        enter_own_network()
    run, of_writes = CASES[arguments[0]]
    try:
        plug_cable()
        with tempfile.TemporaryDirectory() as folder:
            if shutil.which("dumpcap") is None:
                print("no dumpcap (package tshark): the bytes are not checked")
                run()
                return 0
            # dumpcap gives its privileges up, and must reach the folder all the same.
            os.chmod(folder, 0o777)
            capture = Capture(pathlib.Path(folder, "cable.pcap"))
            run()
            capture.stop()
            check_capture(capture.path, of_writes)
        return 0
    except peers.Failure as failure:
        print(f"FAILED: {failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
