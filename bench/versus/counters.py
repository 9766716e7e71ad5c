"""What the kernel counted on the loopback interface while a way had its turn: which path the bytes really took.

The whole network namespace counts, so other traffic of this host is in the numbers too; bytes that should be there and
are not, or that should not be there and are, show all the same.
"""
import pathlib

# A turn that moves less than this can be hidden by what else goes over loopback.
TELLING_BYTES = 16 << 20
# Tensorwire writes larger results straight into outputs, which the HCA does.
THROUGH_SLOTS = 1 << 20


def read():
    counts = {}
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == "lo":
            counts["lo_bytes"], counts["lo_packets"] = map(int, fields.split()[:2])
    rows = [line.split() for line in pathlib.Path("/proc/net/snmp").read_text().splitlines()]
    for names, values in zip(rows[::2], rows[1::2]):
        for wanted, key in ((("Tcp:", "OutSegs"), "tcp_segments_sent"), (("Udp:", "OutDatagrams"), "udp_datagrams_sent")):
            if names[0] == wanted[0]:
                counts[key] = int(values[names.index(wanted[1])])
    return counts


def difference(before, after):
    return {name: after[name] - before[name] for name in after if name in before}


def least_bytes(ranks, size, operations):
    """What all ranks together must at least send: 2 (n-1)/n of the tensor each."""
    return 2 * (ranks - 1) * size * operations


def problem(way, ranks, size, operations, kernel, own):
    """Why the counters speak against the path that this way should have taken, or None."""
    least = least_bytes(ranks, size, operations)
    through_hca = own.get("local_rx_pulled_bytes", 0) + own.get("local_rx_inline_bytes", 0)
    if way.name == "mapped memory" and size <= THROUGH_SLOTS and through_hca > least / 4:
        return f"{through_hca} bytes went through the HCA; they should have stayed in mapped memory"
    if "port_xmit_packets" in own and way.wire == "udp" and own["port_xmit_packets"] < ranks * operations:
        return f"its devices sent {own['port_xmit_packets']} packets in {operations} all-reduces"
    if "messages_sent" in own and own["messages_sent"] < ranks * operations:
        return f"its links sent {own['messages_sent']} messages in {operations} all-reduces"
    if least < TELLING_BYTES or "lo_bytes" not in kernel:
        return None
    over_loopback = kernel["lo_bytes"]
    if way.wire == "memory" and over_loopback > least / 4:
        return f"{over_loopback} bytes went over loopback; it should go through memory"
    if way.wire != "memory" and over_loopback < least:
        return f"only {over_loopback} bytes went over loopback; {least} are the least there can be"
    if way.wire == "udp" and kernel.get("udp_datagrams_sent", 1) == 0:
        return "no datagram was sent"
    if way.wire == "tcp" and kernel.get("tcp_segments_sent", 1) == 0:
        return "no TCP segment was sent"
    return None
