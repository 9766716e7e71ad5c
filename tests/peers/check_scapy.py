#!/usr/bin/env python3
"""Rebuilds the RoCEv2 packets of a capture with scapy's RoCE layer and compares every byte, the ICRC included.

usage: check_scapy.py CAPTURE [MOST]

Looks at the first MOST packets (default 400: scapy is slow). Prints "compared N, different M"; exits 1 when M > 0 or
N == 0, and 77 (skipped) where scapy is not installed.
"""
import sys

try:
    from scapy.contrib.roce import BTH
    from scapy.packet import raw
    from scapy.utils import PcapReader
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def main(arguments):
    most = int(arguments[1]) if len(arguments) > 1 else 400
    compared = different = 0
    for number, packet in enumerate(PcapReader(arguments[0]), start=1):
        if compared == most:
            break
        if BTH not in packet:
            continue
        compared += 1
        sent = raw(packet)
        packet[BTH].icrc = None  # scapy computes it anew
        if raw(packet) != sent:
            different += 1
            print(f"packet {number}: {sent.hex()}\n  by scapy: {raw(packet).hex()}", file=sys.stderr)
    print(f"compared {compared}, different {different}")
    return 1 if different or not compared else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
