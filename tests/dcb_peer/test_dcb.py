"""iproute2's dcb takes the peer for a driver: it shows what is there, sets it, and is refused as a driver refuses. What
Tensorwire reads by netlink is what dcb prints, byte for byte."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import peer


@unittest.skipUnless(shutil.which("dcb"), "iproute2 has no dcb here")
class Dcb(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.peer = peer.Peer(folder.name)

    def dcb(self, *words):
        """Once more where a second began in its middle (README.md)."""
        for _ in range(2):
            done = subprocess.run(["dcb", *words], env=self.peer.environment(), text=True, capture_output=True, timeout=20)
            if "Protocol error" not in done.stderr:
                break
        return done

    def show(self, what, interface="eth2"):
        done = self.dcb("-j", what, "show", "dev", interface)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout or "{}")

    def test_it_shows_what_is_there(self):
        self.peer.add("eth2", pfc=1 << 3, apps=[(peer.DSCP, 26, 3), (1, 35093, 2)])
        self.assertEqual([p == 3 for p in range(8)], self.show("pfc")["prio_pfc"])
        self.assertEqual({"dscp_prio": [[26, 3]], "ethtype_prio": [[35093, 2]]}, self.show("app"))
        self.assertEqual([1, 0, 2, 3, 4, 5, 6, 7], self.show("ets")["prio_tc"])
        self.assertEqual(["vendor"] * 8, self.show("ets")["tc_tsa"])
        self.assertEqual([262016] + 7 * [0], self.show("buffer")["buffer_size"])
        self.assertEqual({"host": True, "ieee": True}, self.show("dcbx"))

    def test_it_sets(self):
        self.peer.add("eth2")
        for words in ("app replace dev eth2 dscp-prio 26:3 48:6", "pfc set dev eth2 prio-pfc all:off 3:on",
                      "pfc set dev eth2 prio-pfc all:off 3:on", "ets set dev eth2 prio-tc 0:0 1:1",
                      "ets set dev eth2 tc-tsa all:strict 0:ets 3:ets tc-bw all:0 0:50 3:50",
                      "app del dev eth2 dscp-prio 48:6"):
            done = self.dcb(*words.split())
            self.assertEqual((0, ""), (done.returncode, done.stderr), words)
        state = self.peer.state("eth2")
        self.assertEqual([(peer.DSCP, 26, 3)], state["app"])
        self.assertEqual("8 8 7", state["pfc"])
        self.assertEqual("1", state["link-flaps"])
        self.assertEqual("0 1 2 3 4 5 6 7", state["prio-tc"])
        self.assertEqual(("2 0 0 2 0 0 0 0", "50 0 0 50 0 0 0 0"), (state["tc-tsa"], state["tc-bw"]))
        self.dcb(*"ets set dev eth2 tc-bw 0:60".split())
        self.assertEqual("50 0 0 50 0 0 0 0", self.peer.state("eth2")["tc-bw"], "shares of more than the whole are refused")
        self.dcb(*"ets set dev eth2 tc-tsa all:vendor tc-bw all:0".split())
        self.assertEqual(8 * "255 ", self.peer.state("eth2")["tc-tsa"] + " ")

    def test_it_is_refused_as_by_a_driver(self):
        self.peer.add("eth2")
        self.peer.add("eth3", driver="bnxt", dcbx=peer.IEEE)
        self.peer.add("eth4", driver="virtual")
        self.peer.add("eth5", fail_at=1)
        for words, why in (("app add dev eth2 dgram-port-prio 4791:3", "Invalid argument"),
                           ("app add dev eth3 dscp-prio 26:3", "Invalid argument"),
                           ("pfc show dev eth4", "Operation not supported"),
                           ("app add dev eth5 dscp-prio 26:3", "Cannot allocate memory"),
                           ("pfc show dev nowhere", "No such device")):
            done = self.dcb(*words.split())
            self.assertEqual(1, done.returncode, words)
            self.assertIn(why, done.stderr, words)
        self.dcb(*"pfc set dev eth3 prio-pfc 3:on".split())  # its status says nothing: README.md
        self.assertEqual("8 0 7", self.peer.state("eth3")["pfc"])

    def test_tensorwire_reads_what_dcb_prints(self):
        self.peer.add("eth2")
        self.peer.add("eth3", dcbx=peer.IEEE, pfc=0b10001000, prio_tc=(0, 0, 0, 1, 0, 0, 2, 0),
                      apps=[(1, 0, 2), (1, 35093, 3), (2, 3260, 4), (3, 4791, 3), (4, 53, 1), (peer.DSCP, 26, 3), (peer.DSCP, 48, 6)])
        for interface in ("eth2", "eth3"):
            printed = [self.dcb("-j", what, "show", "dev", interface).stdout.strip() or "{}"
                       for what in ("pfc", "app", "ets", "buffer", "dcbx")]
            read = subprocess.run([os.environ["DCB_ASK"], interface], env=self.peer.environment(), text=True,
                                  capture_output=True, timeout=20).stdout.splitlines()
            self.assertEqual(printed, read)
        read = subprocess.run([os.environ["DCB_ASK"], "lo"], env=self.peer.environment(), text=True, capture_output=True,
                              timeout=20).stdout.splitlines()
        self.assertEqual(["Operation not supported (EOPNOTSUPP)"] * 5, read)


if __name__ == "__main__":
    unittest.main()
