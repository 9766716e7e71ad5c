#!/usr/bin/env python3
"""Verifies the ICRC of every RoCEv2 packet of a capture, with nothing but Python's zlib.

usage: check_icrc.py CAPTURE

Written from RoCEv2 annex A17 alone, as a second opinion on src/wire/icrc.cpp. Reads classic pcap files with Ethernet frames
(VLAN tags allowed), IPv4 and IPv6. Prints "checked N, wrong M"; exits 1 when M > 0 or N == 0, 2 when the file cannot be
read.
"""
import struct
import sys
import zlib

ROCE_PORT = 4791
MAGICS = {b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">", b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<"}
SHOWN = 10


class Unreadable(Exception):
    pass


def frames(path):
    """(number, captured bytes, length on the wire) of every record."""
    with open(path, "rb") as file:
        header = file.read(24)
        if len(header) < 24 or header[:4] not in MAGICS:
            raise Unreadable("not a classic pcap file")
        order = MAGICS[header[:4]]
        if struct.unpack(order + "I", header[20:24])[0] & 0xFFFF != 1:
            raise Unreadable("not a capture of Ethernet frames")
        number = 0
        while record := file.read(16):
            number += 1
            if len(record) < 16:
                raise Unreadable(f"the file ends inside the header of packet {number}")
            captured, original = struct.unpack(order + "II", record[8:16])
            frame = file.read(captured)
            if len(frame) < captured:
                raise Unreadable(f"the file ends inside packet {number}")
            yield number, frame, original


def ip_packet(frame):
    """The bytes from the IP header on, without Ethernet padding; None for anything that is not IP."""
    offset, ether_type = 14, frame[12:14]
    while ether_type in (b"\x81\x00", b"\x88\xa8"):
        ether_type = frame[offset + 2 : offset + 4]
        offset += 4
    ip = frame[offset:]
    if ether_type == b"\x08\x00" and len(ip) >= 20:
        return ip[: int.from_bytes(ip[2:4], "big")]
    if ether_type == b"\x86\xdd" and len(ip) >= 40:
        return ip[: 40 + int.from_bytes(ip[4:6], "big")]
    return None


def udp_offset(ip):
    """Where the UDP header of a RoCEv2 packet starts; None for other traffic."""
    if ip[0] >> 4 == 4:
        offset, protocol = (ip[0] & 15) * 4, ip[9]
        if int.from_bytes(ip[6:8], "big") & 0x1FFF:
            return None  # a later fragment has no UDP header
    else:
        offset, protocol = 40, ip[6]
    is_roce = protocol == 17 and ip[offset + 2 : offset + 4] == ROCE_PORT.to_bytes(2, "big")
    return offset if is_roce else None


def icrc(ip, udp):
    """The ICRC of an IP packet whose last four bytes are the ICRC's own."""
    masked = bytearray(ip[:-4])
    if ip[0] >> 4 == 4:
        changeable = (1, 8, 10, 11)  # type of service, time to live, header checksum
    else:
        masked[0] |= 0x0F  # traffic class, flow label
        changeable = (1, 2, 3, 7)  # and hop limit
    bth = udp + 8
    for at in (*changeable, udp + 6, udp + 7, bth + 4):  # UDP checksum, FECN/BECN/reserved
        masked[at] = 0xFF
    return zlib.crc32(b"\xff" * 8 + masked)


def fault_of(frame, original):
    """None for a right packet, "" for one that is not RoCEv2, else what is wrong."""
    ip = ip_packet(frame)
    udp = udp_offset(ip) if ip else None
    if udp is None:
        return ""
    if len(frame) < original:
        return f"the capture has {len(frame)} of its {original} bytes"
    if len(ip) < udp + 8 + 12 + 4 or int.from_bytes(ip[udp + 4 : udp + 6], "big") != len(ip) - udp:
        return "its lengths contradict each other"
    stored, computed = int.from_bytes(ip[-4:], "little"), icrc(ip, udp)
    return None if stored == computed else f"ICRC {stored:08x}, computed {computed:08x}"


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    checked = wrong = 0
    try:
        for number, frame, original in frames(arguments[0]):
            fault = fault_of(frame, original)
            if fault == "":
                continue
            checked += 1
            if fault is not None:
                wrong += 1
                if wrong <= SHOWN:
                    print(f"packet {number}: {fault}", file=sys.stderr)
    except (OSError, Unreadable) as error:
        print(f"check_icrc.py: {arguments[0]}: {error}", file=sys.stderr)
        return 2
    print(f"checked {checked}, wrong {wrong}")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
