"""Programs that others wrote look at captures of the wire room; and the checkers themselves are checked: they must fail on
a capture that is wrong.

SAMPLE_CAPTURE names the program that writes the captures.
"""
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

PEERS = pathlib.Path(__file__).resolve().parents[2] / "peers"
SKIPPED = 77
RECORD = 16  # bytes of a record header
BTH = 42  # offset of the BTH in a frame


def check(checker, capture, *options, interpreter=sys.executable):
    return subprocess.run([interpreter, PEERS / checker, *options, capture], text=True, capture_output=True, timeout=120)


def interpreter_with_scapy():
    """Debian's scapy belongs to Debian's Python, which need not be the one on the PATH."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([candidate, "-c", "import scapy.contrib.roce"], capture_output=True, timeout=60).returncode == 0:
            return candidate
    return sys.executable


def records(capture):
    """[header, frame] of every packet; the file header apart."""
    data, offset, found = capture.read_bytes(), 24, []
    while offset < len(data):
        length = struct.unpack(">I", data[offset + 8 : offset + 12])[0]
        found.append([data[offset : offset + RECORD], bytearray(data[offset + RECORD : offset + RECORD + length])])
        offset += RECORD + length
    return data[:24], found


class Checkers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.captures = {}
        for kind in ("opcodes", "all-reduce"):
            cls.captures[kind] = pathlib.Path(cls.folder.name, f"{kind}.pcap")
            subprocess.run([os.environ["SAMPLE_CAPTURE"], kind, cls.captures[kind]], check=True, timeout=60)

    def edited(self, change):
        """The all-reduce capture after change(frames), in a file of its own."""
        head, found = records(self.captures["all-reduce"])
        change([frame for _, frame in found])
        path = pathlib.Path(self.folder.name, "edited.pcap")
        path.write_bytes(head + b"".join(header + frame for header, frame in found))
        return path

    def assert_passes(self, done):
        if done.returncode == SKIPPED:
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_icrc_is_right_by_zlib(self):
        for kind, count in (("opcodes", 296), ("all-reduce", 264)):
            done = check("check_icrc.py", self.captures[kind])
            self.assert_passes(done)
            self.assertIn(f"checked {count}, wrong 0", done.stdout)

    def test_every_packet_is_the_same_by_scapy(self):
        for capture in self.captures.values():
            done = check("check_scapy.py", capture, interpreter=interpreter_with_scapy())
            self.assert_passes(done)
            self.assertIn("different 0", done.stdout)

    def test_tshark_dissects_every_opcode(self):
        self.assert_passes(check("check_capture.py", self.captures["opcodes"], "--opcodes=any"))

    def test_tshark_sees_an_all_reduce(self):
        self.assert_passes(check("check_capture.py", self.captures["all-reduce"]))

    def test_one_flipped_bit_in_one_packet_is_found(self):
        def flip(frames):
            frames[100][-100] ^= 1

        done = check("check_icrc.py", self.edited(flip))
        self.assertEqual(done.returncode, 1)
        self.assertIn("checked 264, wrong 1", done.stdout)
        self.assertIn("packet 101: ICRC", done.stderr)

    def test_what_routers_change_is_no_fault(self):
        def route(frames):
            for frame in frames:
                frame[15] |= 3  # congestion experienced
                frame[22] -= 5  # time to live
                frame[24:26] = b"\x12\x34"  # IP header checksum
                frame[BTH + 4] |= 0x80  # FECN

        self.assertEqual(check("check_icrc.py", self.edited(route)).returncode, 0)

    def test_the_ip_identification_is_covered(self):
        def renumber(frames):
            for frame in frames:
                frame[18:20] = b"\xbe\xef"

        self.assertIn("checked 264, wrong 264", check("check_icrc.py", self.edited(renumber)).stdout)

    def test_a_capture_without_packets_is_no_success(self):
        empty = pathlib.Path(self.folder.name, "empty.pcap")
        empty.write_bytes(self.captures["opcodes"].read_bytes()[:24])
        self.assertEqual(check("check_icrc.py", empty).returncode, 1)
        self.assertIn(check("check_capture.py", empty).returncode, (1, SKIPPED))

    def test_tshark_findings_are_failures(self):
        def another_opcode(frames):
            frames[0][BTH] = 0x00  # SEND First

        def no_immediate(frames):
            for frame in frames:
                if frame[BTH] == 0x09:
                    frame[BTH] = 0x08  # WRITE Last

        def lost_headers(frames):
            frames[0][BTH] = 0xFF

        def no_padding(frames):
            frames[5][38:40] = (int.from_bytes(frames[5][38:40], "big") - 1).to_bytes(2, "big")  # UDP length

        for change in (another_opcode, no_immediate, lost_headers, no_padding):
            with self.subTest(change.__name__):
                done = check("check_capture.py", self.edited(change))
                if done.returncode == SKIPPED:
                    self.skipTest(done.stdout.strip())
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
