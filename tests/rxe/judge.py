#!/usr/bin/env python3
"""Holds the soft HCA against the kernel's soft-RoCE (rdma_rxe), which runs in an emulated machine.

usage: judge.py [--only WORD] [--seed N] [--keep-capture] PEER-PROGRAM BUILD-FOLDER

Boots the machine once, runs every case of CASES in both directions and prints one line for each. Exits 0, 1 with what was
wrong, or 77 with the reason where this machine cannot run it. README.md beside this file says what is checked.
"""
import argparse
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import doctor
import kernel
import machine
from machine import Failure

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
SKIPPED = 77
CASE_BOUND = 200  # seconds
GSO, NO_GSO = "mixed, GSO", "mixed, no GSO"
KINDS = "send,send_imm,write,write_imm,echo,read,fetch_add,cmp_swap"


@dataclasses.dataclass
class Case:
    name: str
    settings: str  # of the peer program, beside initiator and seed
    environment: dict = dataclasses.field(default_factory=dict)
    captured: bool = False
    guest_drops: tuple = ()  # what the machine drops: of the packets "sent", of those "received"
    at_least: tuple = ()  # "here.NAME" or "there.NAME": a counter that must have moved; or one of the sums below
    zero: tuple = ()  # one that must not
    initiators: tuple = ("here", "there")


# Counters of who sends: it sent again. rxe's: its requester retried.
RETRANSMISSIONS = ("here.retransmitted_packets", "there.completer_retry_err")
OF_INITIATOR = "of the initiator"
REFUSED_FOR_NOW = "RNR NAKs that the initiator got"
SPOTLESS = ("here.rx_icrc_encapsulated", "here.rx_malformed", "here.tx_errors")

CASES = [
    Case(GSO, f"kinds={KINDS} mtu=4096", captured=True, zero=SPOTLESS),
    Case(NO_GSO, f"kinds={KINDS} mtu=1024", {"TENSORWIRE_GSO": "off"}, captured=True, zero=SPOTLESS),
    Case("mixed, GSO, 1 % loss", f"kinds={KINDS} mtu=4096 timeout=13", guest_drops=("received", "sent"),
         at_least=RETRANSMISSIONS),
    Case("mixed, no GSO, 1 % loss", f"kinds={KINDS} mtu=4096 timeout=13", {"TENSORWIRE_FAULTS": "drop=1%,seed=7"},
         guest_drops=("sent",), at_least=RETRANSMISSIONS),
    Case("reads and atomics, 1 % loss", "kinds=read,fetch_add,cmp_swap mtu=1024 timeout=13",
         {"TENSORWIRE_FAULTS": "drop=1%,seed=9"}, guest_drops=("sent",), at_least=(OF_INITIATOR,)),
    Case("IPv6", f"kinds={KINDS} mtu=2048 count=200 ipv6=1", captured=True, zero=SPOTLESS),
    Case("unreliable connection", "scenario=unreliable mtu=1024", captured=True, zero=SPOTLESS),
    # Only what rxe sends is dropped: after a gap inside a message its receiver takes none any more (Linux 6.1).
    Case("unreliable connection, 1 % loss", "scenario=unreliable mtu=4096", guest_drops=("sent",), at_least=(OF_INITIATOR,)),
    Case("datagrams", "scenario=datagrams mtu=4096", captured=True, zero=SPOTLESS),
    Case("datagrams, 1 % loss", "scenario=datagrams mtu=4096", {"TENSORWIRE_FAULTS": "drop=1%,seed=5"}, guest_drops=("sent",),
         at_least=(OF_INITIATOR,)),
    Case("leases", "scenario=leases kinds=write mtu=1024 count=150", captured=True, zero=SPOTLESS),
    Case("leases, 1 % loss", "scenario=leases kinds=write mtu=1024 count=60 timeout=13",
         {"TENSORWIRE_FAULTS": "drop=1%,seed=3"}, guest_drops=("sent",)),
    Case("ping-pong", "kinds=echo window=1 mtu=1024 count=200", zero=SPOTLESS),
    Case("receiver not ready", f"kinds={KINDS} mtu=1024 count=50 late=1", at_least=(REFUSED_FOR_NOW,)),
    *(Case(f"refused: {name}", f"scenario=refusal refusal={name} mtu=1024")
      for name in ("wrong_key", "past_the_end", "read_only", "long_send", "no_window")),
    # The other way round rxe refuses it itself: it does not even post it.
    Case("refused: misaligned", "scenario=refusal refusal=misaligned mtu=1024", initiators=("here",)),
]


class Judge:
    def __init__(self, arguments, folder):
        self.program, self.libraries = arguments.program, arguments.build / "lib/tensorwire"
        self.seed, self.folder, self.keep = arguments.seed, folder, arguments.keep_capture
        self.doctor = arguments.build.resolve() / "bin/tensorwire"
        self.machine = machine.Machine(folder, self.program, self.doctor)
        print(f"the machine was up after {self.machine.boot_seconds:.1f} s", flush=True)

    def run(self, case, initiator):
        """One line on a good case; raises Failure otherwise."""
        for direction in case.guest_drops:
            self.machine.drop(direction)
        try:
            with capture(self.folder, case.captured or self.keep) as path:
                results = self.session(case, initiator)
        finally:
            dropped = {direction: self.machine.drop_no_more(direction) for direction in case.guest_drops}
        self.check(case, initiator, results, dropped)
        line = (f"{results['here.operations']} operations, {max(results['here.bytes'], results['there.bytes']) / 1e6:.1f} MB, "
                f"{results['here.milliseconds'] / 1000:.1f} s")
        if case.guest_drops:
            sent_again = ", ".join(f"{name} {results[name]}" for name in case.at_least)
            line += f"; the machine dropped {sum(dropped.values())} packets; sent again: {sent_again}"
        if path:
            line += "; " + check_capture(path)
            if not self.keep:
                path.unlink()
        return line

    def session(self, case, initiator):
        command = [self.program, "run", machine.GUEST, str(machine.SERVER_PORT), f"initiator={initiator}",
                   f"seed={self.seed}", *case.settings.split(), f"loss={int(bool(case.guest_drops))}"]
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TENSORWIRE_")}
        environment = {**plain, "LD_LIBRARY_PATH": str(self.libraries), **case.environment}
        try:
            done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=CASE_BOUND)
        except subprocess.TimeoutExpired:
            raise Failure(f"did not end within {CASE_BOUND} s") from None
        if done.returncode != 0:
            raise Failure(f"{done.stdout}{done.stderr}".strip())
        results = {}
        for side, name, value in (line.split() for line in done.stdout.splitlines()):
            results[f"{side}.{name}"] = int(value)
        asked_again = results["here.repeated"] + results["there.repeated"]  # UC and UD: by the program
        results[REFUSED_FOR_NOW] = results["here.rnr_nak_retry_err" if initiator == "here" else "there.rcvd_rnr_err"]
        results[OF_INITIATOR] = asked_again or results[RETRANSMISSIONS[initiator == "there"]]
        return results

    def check(self, case, initiator, results, dropped):
        for name in case.at_least:
            if results[name] == 0:
                raise Failure(f"{name}: none")
        for name in case.zero:
            if results[name] != 0:
                raise Failure(f"{name} is {results[name]}")
        if case.name in (GSO, NO_GSO) and initiator == "here":
            batched = results["here.tx_sends"] < results["here.port_xmit_packets"]
            if batched == (case.name == NO_GSO):
                raise Failure(f"{results['here.port_xmit_packets']} packets left in {results['here.tx_sends']} sends")
        for direction, count in dropped.items():
            if count == 0:
                raise Failure(f"the machine dropped nothing of what it {direction}")


@contextlib.contextmanager
def capture(folder, wanted):
    """All RoCEv2 packets on the tap, as they are on the wire, while the block runs."""
    if not wanted:
        yield None
        return
    path = folder / "tap.pcap"
    path.unlink(missing_ok=True)
    process = subprocess.Popen([kernel.required("dumpcap", "tshark"), "-i", machine.TAP, "-f", "udp port 4791", "-P", "-q",
                                "-B", "64", "-w", path], stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if line.startswith("File:"):
                break
        else:
            raise Failure("dumpcap captured nothing")
        yield path
        time.sleep(1)  # the last packets come to dumpcap late
    finally:
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=30)[1]
    missed = re.search(r"dropped on interface .*: \d+/(\d+)", told)
    if missed and int(missed[1]):
        print(f"  (dumpcap missed {missed[1]} packets of the following case)")


def check_capture(path):
    """Every ICRC by our own check, everything else by tshark."""
    told = []
    for command in ([PEERS / "check_icrc.py", path], [PEERS / "check_capture.py", "--opcodes", "all-services", path]):
        done = subprocess.run([sys.executable, "-B", *command], text=True, capture_output=True, timeout=300)
        if done.returncode not in (0, SKIPPED):
            raise Failure(f"{command[0].name}: {done.stdout}{done.stderr}")
        told.append(f"{command[0].name}: {done.stdout.strip().splitlines()[-1]}")
    return ", ".join(told)


def all_tests(bench):
    """(what its line begins with, what makes the rest of that line) of every case, and of the doctor in the machine."""
    yield "doctor, on the kernel's rxe", doctor.Doctor(bench.machine, bench.doctor).run
    for case in CASES:
        for initiator in case.initiators:
            shown = {"here": "soft HCA asks rxe", "there": "rxe asks soft HCA"}[initiator]
            yield f"{case.name}, {shown}", functools.partial(bench.run, case, initiator)


def judge(arguments, folder):
    machine.make_tap()
    bench = Judge(arguments, folder)
    failed = 0
    for name, test in all_tests(bench):
        if arguments.only and arguments.only not in name:
            continue
        try:
            print(f"{name}: {test()}", flush=True)
        except (Failure, OSError) as failure:
            failed += 1
            print(f"FAILED: {name}, seed {arguments.seed}: {failure}", flush=True)
    if failed:
        print(f"the machine's console:\n{bench.machine.console()}")
    bench.machine.stop()
    return 1 if failed else 0


def enter_own_network(folder):
    """Becomes this program in network and process namespaces of its own, which end with it."""
    unshare = [kernel.required("unshare", "util-linux"), "--net", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        unshare += ["--map-root-user"]
    probe = subprocess.run([*unshare, "true"], capture_output=True, text=True, timeout=30)
    if probe.returncode != 0:
        raise kernel.Unavailable(f"no network namespace can be made: {probe.stderr.strip()}")
    kernel.prepare_kernel(folder)  # out here, where it can be downloaded
    sys.stdout.flush()
    os.execv(unshare[0], [*unshare, sys.executable, "-B", __file__, "--inside", *sys.argv[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", help="the cases with these words in their line")
    parser.add_argument("--seed", type=int, default=1, help="of lengths, contents and kinds")
    parser.add_argument("--keep-capture", action="store_true", help="capture every case; leave the last one in BUILD-FOLDER/rxe/tap.pcap")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        folder = arguments.build / "rxe"
        if not arguments.inside:
            enter_own_network(folder)
        return judge(arguments, folder)
    except kernel.Unavailable as reason:
        print(f"SKIPPED: {reason}")
        return SKIPPED
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
