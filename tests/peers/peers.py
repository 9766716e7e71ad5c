"""Runs verbs programs that nobody here wrote on the drop-in library, with LD_LIBRARY_PATH and nothing else set.

usage: peers.py CASE        exits 0, 1 with what went wrong, or 77 when the program is not installed

TW_BUILD_DIR names the build folder. Server and client run on this host; every process has a wall-clock bound.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

BUILD = pathlib.Path(os.environ.get("TW_BUILD_DIR", "build/release"))
LIBRARIES = BUILD / "lib/tensorwire"
BOUND = 40  # seconds, for one process
SKIPPED = 77
PACKAGES = {"ibv": "ibverbs-utils", "ib_": "perftest"}


def environment():
    """The caller's, without our variables, and with the loader's path as the only setting."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENSORWIRE_")}
    return {**kept, "LD_LIBRARY_PATH": str(LIBRARIES), "LC_ALL": "C"}


class Failure(Exception):
    pass


def require(program):
    if shutil.which(program) is None:
        package = next(name for prefix, name in PACKAGES.items() if program.startswith(prefix))
        print(f"SKIPPED: {program} is not installed (package {package})")
        sys.exit(SKIPPED)
    if not (LIBRARIES / "libibverbs.so.1").exists():
        raise Failure(f"{LIBRARIES}/libibverbs.so.1 is not built")


def start(*command):
    return subprocess.Popen(list(map(str, command)), env=environment(), text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def finish(process, name, expected=0):
    """The output of a process that must exit with `expected` within the bound."""
    try:
        output, _ = process.communicate(timeout=BOUND)
    except subprocess.TimeoutExpired:
        stop(process)
        raise Failure(f"{name} did not end within {BOUND} s:\n{process.communicate()[0]}") from None
    print(f"--- {name}: exit {process.returncode}\n{output}")
    if process.returncode != expected:
        raise Failure(f"{name}: exit {process.returncode}, not {expected}")
    return output


def stop(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(*command, expected=0):
    return finish(start(*command), " ".join(map(str, command)), expected)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(port, server):
    """Looks into /proc: a connection to try would be taken for the client's."""
    wanted = re.compile(rf":{port:04X} \S+ 0A ")  # 0A: LISTEN
    deadline = time.monotonic() + BOUND
    while time.monotonic() < deadline:
        if any(wanted.search(pathlib.Path(table).read_text()) for table in ("/proc/net/tcp", "/proc/net/tcp6")):
            return
        if server.poll() is not None:
            raise Failure(f"the server ended early: exit {server.returncode}\n{server.communicate()[0]}")
        time.sleep(0.05)
    raise Failure(f"the server does not listen on port {port}")


def pair(program, *options):
    """Runs the program as server and as client; returns the outputs of both."""
    require(program)
    port = free_port()
    command = [program, "-d", "soft0", "-p", port, *options]
    server = start(*command)
    try:
        wait_until_listening(port, server)
        client_output = finish(start(*command, "127.0.0.1"), f"{' '.join(map(str, command))} (client)")
        return finish(server, f"{program} (server)"), client_output
    finally:
        stop(server)


def expect(text, pattern, what):
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise Failure(f"no {what} in the output (looked for {pattern})")
    return found


# ---- the cases


def devices():
    require("ibv_devices")
    expect(run("ibv_devices"), r"^\s+soft0\s+(?!0{16})[0-9a-f]{16}$", "line of soft0 with its GUID")


def devinfo():
    require("ibv_devinfo")
    output = run("ibv_devinfo", "-v", "-d", "soft0")
    expect(output, r"^hca_id:\s+soft0$", "hca_id")
    expect(output, r"state:\s+PORT_ACTIVE \(4\)", "active port")
    expect(output, r"link_layer:\s+Ethernet", "link layer")
    expect(output, r"GID\[\s*1\]:\s+::ffff:127\.0\.0\.\d+, RoCE v2", "RoCE v2 GID at index 1")


def pingpong(*options, iterations=200, program="ibv_rc_pingpong"):
    def case():
        for output in pair(program, "-g", 1, "-n", iterations, *options):
            found = expect(output, rf"^{iterations} iters in ([\d.]+) seconds = ([\d.]+) usec/iter$", "result")
            if not 0 < float(found[2]) < 1e5:
                raise Failure(f"{found[2]} us a round trip is not to be believed")

    return case


def write_latency():
    for output in pair("ib_write_lat", "-x", 1, "-F", "-n", 1000):
        row = expect(output, r"^ 2\s+1000\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s", "result row")
        lowest, highest, typical = map(float, row.groups())
        if not 0 < lowest <= typical <= highest:
            raise Failure(f"latencies out of order: {row[0]}")


def write_bandwidth(*options):
    def case():
        _, output = pair("ib_write_bw", "-x", 1, "-F", "-n", 500, *options)
        row = expect(output, r"^ 65536\s+\d+\s+([\d.]+)\s+([\d.]+)\s", "result row")
        if float(row[2]) < 10:
            raise Failure(f"{row[2]} MB/s is no bandwidth")

    return case


def read_latency():
    expect(pair("ib_read_lat", "-x", 1, "-F", "-n", 500, "-s", 4096)[1], r"^ 4096\s+500\s+[\d.]+\s", "result row")


def read_bandwidth(*options):
    def case():
        _, output = pair("ib_read_bw", "-x", 1, "-F", "-n", 300, *options)
        row = expect(output, r"^ 65536\s+\d+\s+([\d.]+)\s+([\d.]+)\s", "result row")
        if float(row[2]) < 10:
            raise Failure(f"{row[2]} MB/s is no bandwidth")

    return case


def atomic_latency(kind):
    def case():
        expect(pair("ib_atomic_lat", "-x", 1, "-F", "-n", 500, "-A", kind)[1], r"^ 8\s+500\s+[\d.]+\s", "result row")

    return case


def atomic_bandwidth(kind):
    def case():
        expect(pair("ib_atomic_bw", "-x", 1, "-F", "-n", 500, "-A", kind)[1], r"^ 8\s+500\s+[\d.]+\s", "result row")

    return case


def send_latency(*options):
    def case():
        expect(pair("ib_send_lat", "-x", 1, "-F", "-n", 500, "-s", 64, *options)[1], r"^ 64\s+500\s+[\d.]+\s", "result row")

    return case


def send_bandwidth(*options, size):
    def case():
        _, output = pair("ib_send_bw", "-x", 1, "-F", "-n", 500, "-s", size, *options)
        row = expect(output, rf"^ {size}\s+\d+\s+([\d.]+)\s+([\d.]+)\s", "result row")
        if float(row[2]) < 1:
            raise Failure(f"{row[2]} MB/s is no bandwidth")

    return case


def refusals():
    """What the HCA has not ends the program with its own error line, at once."""
    require("ibv_xsrq_pingpong")
    refusal = r"Couldn't Open the XRC Domain"
    expect(run("ibv_xsrq_pingpong", "-d", "soft0", "-g", 1, expected=1), refusal, "refusal of an XRC domain")


def soft_command():
    """`tensorwire soft -- COMMAND` sets the same up."""
    require("ibv_devices")
    program = BUILD / "bin/tensorwire"
    plain = {name: value for name, value in environment().items() if name != "LD_LIBRARY_PATH"}

    def soft(*command):
        return subprocess.run([program, "soft", *command], env=plain, text=True, capture_output=True, timeout=BOUND,
                              stdin=subprocess.DEVNULL)

    done = soft("--", "ibv_devices")
    if done.returncode != 0 or "soft0" not in done.stdout:
        raise Failure(f"soft -- ibv_devices: exit {done.returncode}\n{done.stdout}{done.stderr}")
    done = soft("--", "sh", "-c", "exit 7")
    if done.returncode != 7:
        raise Failure(f"exit 7 came out as {done.returncode}")
    done = soft("--", "no-such-program-anywhere")
    if done.returncode == 0 or "no-such-program-anywhere" not in done.stderr or len(done.stderr.splitlines()) != 1:
        raise Failure(f"a missing program: exit {done.returncode}, said {done.stderr!r}")


CASES = {
    "devices": devices,
    "devinfo": devinfo,
    "rc_pingpong": pingpong("-c", iterations=1000),
    "rc_pingpong_events": pingpong("-e"),
    "rc_pingpong_one_byte": pingpong("-s", 1),
    "rc_pingpong_mtu_256": pingpong("-s", 4097, "-m", 256, iterations=100),
    "rc_pingpong_mtu_4096": pingpong("-s", 1 << 20, "-m", 4096, iterations=50),
    "rc_pingpong_new_send": pingpong("-N"),
    "write_lat": write_latency,
    "write_bw": write_bandwidth(),
    "write_bw_bidirectional": write_bandwidth("-b"),
    "write_bw_four_queue_pairs": write_bandwidth("-q", 4),
    "send_lat": send_latency(),
    "send_lat_events": send_latency("-e"),
    "uc_pingpong": pingpong("-c", program="ibv_uc_pingpong", iterations=1000),
    "uc_pingpong_events": pingpong("-e", program="ibv_uc_pingpong"),
    "uc_pingpong_mtu_256": pingpong("-s", 4097, "-m", 256, program="ibv_uc_pingpong", iterations=100),
    "write_bw_uc": write_bandwidth("-c", "UC"),
    "send_lat_uc": send_latency("-c", "UC"),
    "send_bw_uc": send_bandwidth("-c", "UC", "-t", 8, size=8192),
    "ud_pingpong": pingpong(program="ibv_ud_pingpong", iterations=1000),
    "ud_pingpong_events": pingpong("-e", program="ibv_ud_pingpong"),
    "ud_pingpong_mtu": pingpong("-s", 4096, program="ibv_ud_pingpong"),
    "srq_pingpong": pingpong(program="ibv_srq_pingpong", iterations=1000),
    "srq_pingpong_events": pingpong("-e", "-q", 4, "-s", 20000, program="ibv_srq_pingpong"),
    "send_lat_ud": send_latency("-c", "UD"),
    "send_bw_ud": send_bandwidth("-c", "UD", size=1024),
    "read_lat": read_latency,
    "read_bw": read_bandwidth(),
    "read_bw_bidirectional": read_bandwidth("-b"),
    "read_bw_one_outstanding": read_bandwidth("-o", 1),
    "atomic_lat_fetch_add": atomic_latency("FETCH_AND_ADD"),
    "atomic_lat_compare_swap": atomic_latency("CMP_AND_SWAP"),
    "atomic_bw_fetch_add": atomic_bandwidth("FETCH_AND_ADD"),
    "refusals": refusals,
    "soft_command": soft_command,
}


def main(arguments):
    if len(arguments) != 1 or arguments[0] not in CASES:
        print(f"usage: peers.py {'|'.join(CASES)}")
        return 2
    try:
        CASES[arguments[0]]()
        return 0
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
