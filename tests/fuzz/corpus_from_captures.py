#!/usr/bin/env python3
"""Turns captures of the soft HCA into inputs of the engine's fuzz harness (engine_fuzz.cpp).

usage: corpus_from_captures.py [--record BUILD-FOLDER] [--check]

captures/NAME.pcap become corpus/engine/captured_NAME_a and _b: the harness plays one end of the connections, the capture says
what the other end sends and when. --record makes the captures anew: perftest and ibverbs-utils on the drop-in of that build
folder, over packets, some with faults. --check writes nothing, and fails where corpus and captures differ.
"""
import argparse
import os
import pathlib
import socket
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CAPTURES, CORPUS = HERE / "captures", HERE / "corpus/engine"

# name: faults, program and options; messages of a few packets of 256 bytes, so that they fit the harness's memory.
RECIPES = {
    "pingpong": ("", "ibv_rc_pingpong", "-n", 3, "-s", 700, "-m", 256, "-g", 1),
    "shared": ("", "ibv_srq_pingpong", "-n", 3, "-s", 600, "-m", 256, "-q", 2, "-g", 1),
    "write": ("", "ib_write_bw", "-F", "-n", 5, "-s", 600, "-m", 256, "-x", 1),
    "write_lost": ("drop=15%,seed=5", "ib_write_bw", "-F", "-n", 5, "-s", 1000, "-m", 256, "-x", 1),
    "read": ("", "ib_read_bw", "-F", "-n", 5, "-s", 600, "-m", 256, "-x", 1),
    "read_lost": ("drop=15%,seed=3", "ib_read_bw", "-F", "-n", 5, "-s", 600, "-m", 256, "-x", 1),
    "fetch_add": ("", "ib_atomic_bw", "-F", "-n", 5, "-x", 1),
    "compare_swap_lost": ("drop=15%,seed=4", "ib_atomic_bw", "-F", "-n", 5, "-A", "CMP_AND_SWAP", "-x", 1),
    "send": ("", "ib_send_bw", "-F", "-n", 5, "-s", 700, "-m", 256, "-x", 1),
    "send_lost": ("drop=15%,dup=10%,seed=9", "ib_send_bw", "-F", "-n", 6, "-s", 700, "-m", 256, "-x", 1),
}
BOUND = 40  # seconds, for one program


def record(build):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TENSORWIRE_")}
    for name, (faults, program, *options) in RECIPES.items():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {**plain, "LD_LIBRARY_PATH": str(build / "lib/tensorwire"), "TENSORWIRE_LINK": "packets",
                  **({"TENSORWIRE_FAULTS": faults} if faults else {})}
        command = [program, "-d", "soft0", "-p", str(port), *map(str, options)]
        capture = CAPTURES / f"{name}.pcap"
        server = subprocess.Popen(command, env={**common, "TENSORWIRE_PCAP": str(capture)}, stdout=subprocess.DEVNULL)
        time.sleep(1)
        subprocess.run([*command, "127.0.0.1"], env=common, stdout=subprocess.DEVNULL, timeout=BOUND, check=True)
        if server.wait(BOUND) != 0:
            sys.exit(f"{program} (server) failed")


# ---- captures: Ethernet, IPv4 without options, UDP, then what the engine speaks

PAYLOAD = {*range(0x00, 0x0C), *range(0x0D, 0x11)}
REQUESTS = {*range(0x00, 0x0D), 0x13, 0x14}
RETH, ATOMIC = {0x06, 0x0A, 0x0B, 0x0C}, {0x13, 0x14}
AETH = {0x0D, 0x0F, 0x10, 0x11, 0x12}
LAST_ANSWERS = {0x0F, 0x10, 0x12}
IMMEDIATE = {0x03, 0x05, 0x09, 0x0B}
KNOWN = REQUESTS | AETH | {0x0E, 0x81}


class Packet:
    def __init__(self, source, datagram):
        self.source = source
        self.opcode, flags = datagram[0], datagram[1]
        self.solicited, pad = flags >> 7, flags >> 4 & 3
        self.qpn = int.from_bytes(datagram[5:8], "big")
        self.ack_request = datagram[8] >> 7
        self.psn = int.from_bytes(datagram[9:12], "big")
        at = 12
        self.length = self.syndrome = 0
        if self.opcode in RETH:
            self.length = int.from_bytes(datagram[at + 12:at + 16], "big")
            at += 16
        if self.opcode in ATOMIC:
            at += 28
        if self.opcode in AETH:
            self.syndrome = datagram[at]
            at += 4
        if self.opcode == 0x12:
            at += 8
        if self.opcode in IMMEDIATE:
            at += 4
        self.bytes = len(datagram) - at - pad - 4 if self.opcode in PAYLOAD else 0


def packets_of(path):
    data = path.read_bytes()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at < len(data):
        captured = struct.unpack_from(order + "I", data, at + 8)[0]
        frame = data[at + 16:at + 16 + captured]
        at += 16 + captured
        source, port = frame[26:30], struct.unpack_from(">H", frame, 36)[0]
        if frame[12:14] == b"\x08\x00" and frame[23] == 17 and port == 4791 and frame[42] in KNOWN:
            yield Packet(source, frame[42:])


# ---- what the harness reads (Host::step and what it calls)

QPS = 3
PACKET, POST_RECEIVE, POST_SEND, TRANSMIT, TIME = 0, 3, 4, 5, 6
SIZE_NONE, SIZE_MTU, SIZE_OTHER = 0, 1, 3
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, COMPARE_SWAP, FETCH_ADD = range(7)
OPERATIONS = {0x0C: READ, 0x13: COMPARE_SWAP, 0x14: FETCH_ADD}
MTU = 256


def step(what, qp):
    """The first byte of a step: its upper three bits say what happens, its remainder says to which queue pair."""
    return next(byte for byte in range(what << 5, (what + 1) << 5) if byte % QPS == qp)


def element(length):
    return [0, (length + 3) // 4, 0]


class Script:
    """One end of a capture, as the harness plays it."""

    def __init__(self, packets, own):
        self.out = bytearray()
        self.going_back = False  # what we send again needs no other cause
        self.own = own
        self.qps = {}        # own and peer's QPNs, in the order of appearance: the first of both talk to each other
        self.first = {}      # PSN that a direction begins with, by sender and queue pair
        self.expected = {}   # requests of the peer that were executed
        self.sent = {}       # PSNs of our requests: what is sent again is no new request
        self.lengths = {}    # of our messages, by queue pair and PSN of the first packet
        for packet in packets:
            self.number(packet)
        self.measure(packets)
        for packet in packets:
            (self.ours if packet.source == own else self.theirs)(packet)

    def qp(self, packet):
        return self.qps[packet.source == self.own, packet.qpn]

    def number(self, packet):
        ours = packet.source == self.own
        if (ours, packet.qpn) not in self.qps:
            self.qps[ours, packet.qpn] = sum(1 for side, _ in self.qps if side == ours) % QPS
        if packet.opcode in REQUESTS:
            key = ours, self.qp(packet)
            if key not in self.first or (packet.psn - self.first[key]) % (1 << 24) > 1 << 23:
                self.first[key] = packet.psn

    def position(self, packet):
        """Of its PSN, behind the first of its direction: an answer has the other direction's."""
        ours = (packet.source == self.own) == (packet.opcode in REQUESTS)
        return (packet.psn - self.first.get((ours, self.qp(packet)), packet.psn)) % (1 << 24)

    def measure(self, packets):
        """SENDs do not say how long they are: their packets do."""
        sizes = {}
        for packet in packets:
            if packet.opcode < 0x06:
                sizes[packet.source == self.own, self.qp(packet), self.position(packet)] = packet
        for (ours, qp, position), packet in sizes.items():
            if packet.opcode not in (0x00, 0x04, 0x05):
                continue
            length, at = packet.bytes, position + 1
            while (rest := sizes.get((ours, qp, at))) is not None and rest.opcode in (0x01, 0x02, 0x03):
                length, at = length + rest.bytes, at + 1
            self.lengths[ours, qp, position] = length

    def ours(self, packet):
        """A new message of ours is posted when its first packet leaves; then the link asks for packets."""
        qp, position = self.qp(packet), self.position(packet)
        starts = packet.opcode in (0x00, 0x04, 0x05, 0x06, 0x0A, 0x0B) or packet.opcode in OPERATIONS
        again = packet.opcode in REQUESTS and position < self.sent.get(qp, 0)
        if starts and not again:
            self.post(packet, qp, position)
        if again and not self.going_back:
            self.out.extend([step(TIME, 0), 40])  # 2 ms: longer than the acknowledge timeout
        self.going_back = again
        if packet.opcode in REQUESTS:
            psns = max(1, -(-packet.length // MTU)) if packet.opcode == 0x0C else 1
            self.sent[qp] = max(self.sent.get(qp, 0), position + psns)
        self.transmit()

    def transmit(self):
        both = bytes([step(TRANSMIT, 0)] * 2)  # the second byte: "no failure", or one more when nothing left
        if self.out[-2:] != both:
            self.out += both

    def post(self, packet, qp, position):
        if packet.opcode in OPERATIONS:
            operation = OPERATIONS[packet.opcode]
            length = packet.length if operation == READ else 8
        elif packet.opcode < 0x06:
            operation = SEND_IMM if packet.opcode == 0x05 else SEND
            length = self.lengths[True, qp, position]
        else:
            operation = WRITE_IMM if packet.opcode == 0x0B else WRITE
            length = packet.length
        flags = (4 if packet.solicited else 0) | 1 << 3
        self.out.extend([step(POST_SEND, qp), *element(length), *element(0), operation, flags])

    def theirs(self, packet):
        qp, position = self.qp(packet), self.position(packet)
        self.going_back = packet.syndrome >= 0x20  # an RNR NAK or a NAK: it needs no timeout
        executes = packet.opcode in REQUESTS and position == self.expected.get(qp, 0)
        if executes:
            psns = max(1, -(-packet.length // MTU)) if packet.opcode == 0x0C else 1
            self.expected[qp] = position + psns
            if packet.opcode in (0x00, 0x04, 0x05):
                self.out.extend([step(POST_RECEIVE, qp), *element(self.lengths[False, qp, position]), *element(0), 1])
            elif packet.opcode in (0x09, 0x0B):
                self.out.extend([step(POST_RECEIVE, qp), *element(0), *element(0), 0])
        size = SIZE_NONE if packet.bytes == 0 else SIZE_MTU if packet.bytes == MTU else SIZE_OTHER
        flags = packet.ack_request | packet.solicited << 1 | size << 2
        odd = 128 if position > 15 else 0
        self.out.extend([step(PACKET, qp), packet.opcode, flags, odd])
        self.out.extend(position.to_bytes(4, "big") if odd else [position])
        self.out.extend([0, (packet.length + 3) // 4, 7, packet.syndrome, 1, packet.bytes % 256])
        if packet.bytes != 0 and (executes or packet.opcode in (0x0D, 0x0E, 0x0F, 0x10)):
            self.out.extend([0])  # its memory is there
        if packet.opcode in LAST_ANSWERS:
            self.transmit()  # the harness has fewer READs and atomics outstanding than the capture: the next may leave


def convert():
    """All inputs, by name."""
    made = {}
    for path in sorted(CAPTURES.glob("*.pcap")):
        packets = list(packets_of(path))
        ends = sorted({packet.source for packet in packets})
        for end, letter in zip(ends, "ab"):
            made[f"captured_{path.stem}_{letter}"] = bytes(Script(packets, end).out)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=pathlib.Path, help="build folder whose drop-in makes the captures anew")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where corpus and captures differ")
    options = parser.parse_args()
    if options.record:
        CAPTURES.mkdir(exist_ok=True)
        record(options.record.resolve())
    made = convert()
    kept = {path.name: path.read_bytes() for path in CORPUS.glob("captured_*")}
    if options.check:
        return 0 if made == kept else f"{CORPUS} is not what {CAPTURES} give: run {sys.argv[0]}"
    for name in kept.keys() - made.keys():
        (CORPUS / name).unlink()
    for name, content in made.items():
        (CORPUS / name).write_bytes(content)
    print(f"{len(made)} inputs from {len(list(CAPTURES.glob('*.pcap')))} captures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
