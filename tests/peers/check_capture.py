#!/usr/bin/env python3
"""Has tshark dissect a capture of RoCEv2 traffic and checks what it found.

usage: check_capture.py [--opcodes all-reduce|rc|all-services|any] CAPTURE

Every packet must be RoCEv2 with an expected opcode, padded to four bytes; immediate data stands in exactly the packets whose
opcode has it, and at least one does; nothing is malformed, and tshark's experts have neither a warning nor an error.
"all-reduce" (default) expects RDMA WRITEs, ACKs, CNPs and the greetings of the user-space HCA (a manufacturer's opcode), "rc"
every RC opcode, "all-services" these, those of UC and UD, and greetings. Prints a count per opcode; exits 1 on a finding, 2 when tshark cannot
read the file, 77 (skipped) where there is no tshark.
"""
import argparse
import collections
import shutil
import subprocess
import sys

FIELDS = ("frame.number", "udp.length", "infiniband.bth.opcode", "infiniband.immdt", "_ws.malformed", "_ws.expert.severity",
          "_ws.expert.message")
WRITES, ACK, CNP, HELLO = range(0x06, 0x0C), 0x11, 0x81, 0xC1
RC, UC, UD = {*range(0x00, 0x18), CNP} - {0x15}, range(0x20, 0x2C), {0x64, 0x65}
EXPECTED = {"all-reduce": {*WRITES, ACK, CNP, HELLO}, "rc": RC, "all-services": {*RC, *UC, *UD, HELLO}, "any": set(range(256))}
WITH_IMMEDIATE = {0x03, 0x05, 0x09, 0x0B, 0x23, 0x25, 0x29, 0x2B, 0x65}
EXPERT_WARNING = 0x00600000
# Payload is tensors: the protocols that tshark guesses from its bytes are no finding.
GUESSES = ("eth_over_ib", "fc_infiniband", "iser_infiniband", "lnet_ib", "mellanox_eoib", "nvme_rdma", "rpcrdma_infiniband",
           "sdp_infiniband", "smb_direct_infiniband", "smcr_infiniband")
SHOWN = 10


def dissect(tshark, path):
    """tshark's fields of every packet, as dictionaries of text."""
    guesses = list(GUESSES)
    while True:
        # RoCEv2 lets the UDP checksum be zero over IPv6 too, as the kernel's rxe sends it: the ICRC covers the packet.
        command = [tshark, "-n", "-r", path, "-T", "fields", "-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
        for name in guesses:
            command += ["--disable-heuristic", name]
        for field in FIELDS:
            command += ["-e", field]
        done = subprocess.run(command, text=True, capture_output=True, timeout=300)
        unknown = [name for name in guesses if f"No such protocol {name}," in done.stderr]
        if not unknown:
            break
        guesses.remove(unknown[0])  # another version of tshark
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return [dict(zip(FIELDS, line.split("\t"))) for line in done.stdout.splitlines()]


def numbers(text):
    return [int(part, 0) for part in text.split(",") if part]


def findings_of(packet, expected):
    opcodes = numbers(packet["infiniband.bth.opcode"])
    if len(opcodes) != 1:
        return ["it is not one RoCEv2 packet"]
    opcode, found = opcodes[0], []
    if opcode not in expected:
        found.append(f"opcode {opcode:#04x} is not expected here")
    if (opcode in WITH_IMMEDIATE) != bool(packet["infiniband.immdt"]):
        found.append(f"opcode {opcode:#04x} {'without' if opcode in WITH_IMMEDIATE else 'with'} immediate data")
    if opcode != HELLO and any(length % 4 for length in numbers(packet["udp.length"])):
        found.append("it is not padded to four bytes")
    if packet["_ws.malformed"]:
        found.append("it is malformed")
    if any(severity >= EXPERT_WARNING for severity in numbers(packet["_ws.expert.severity"])):
        found.append(f"tshark's experts: {packet['_ws.expert.message']}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--opcodes", choices=EXPECTED, default="all-reduce")
    parser.add_argument("capture")
    arguments = parser.parse_args()
    tshark = shutil.which("tshark")
    if tshark is None:
        print("skipped: tshark is not installed")
        return 77
    try:
        packets = dissect(tshark, arguments.capture)
    except (RuntimeError, subprocess.SubprocessError) as error:
        print(f"check_capture.py: {arguments.capture}: {error}", file=sys.stderr)
        return 2

    findings, counts = [], collections.Counter()
    for packet in packets:
        counts.update(numbers(packet["infiniband.bth.opcode"]))
        findings += [f"packet {packet['frame.number']}: {text}" for text in findings_of(packet, EXPECTED[arguments.opcodes])]
    if not counts.keys() & WITH_IMMEDIATE:
        findings.append("no packet carries immediate data")
    for text in findings[:SHOWN]:
        print(text, file=sys.stderr)
    print(f"dissected {len(packets)}, findings {len(findings)}: "
          + ", ".join(f"{opcode:#04x} x {count}" for opcode, count in sorted(counts.items())))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
