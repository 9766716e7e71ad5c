"""The peer as a Python object: a file with a port's state, and the environment that joins a program to it."""
import fcntl
import os
import pathlib

LIBRARY = os.environ.get("DCB_PEER_LIBRARY", "build/release/tests/dcb_peer/libdcb_peer.so")
HOST, IEEE = 1, 8  # bits of the DCBX mode (linux/dcbnl.h)
DSCP = 5  # selectors of application entries (IEEE 802.1Qaz)
STRICT, ETS, VENDOR = 0, 2, 255  # transmission selection


class Peer:
    def __init__(self, folder):
        self.path = pathlib.Path(folder, "ports.txt")
        self.clear()

    def clear(self):
        self.path.write_text("")

    def add(self, interface, driver="mlx5", dcbx=HOST | IEEE, pfc=0, prio_tc=(1, 0, 2, 3, 4, 5, 6, 7), apps=(), fail_at=0,
            tsa=None, ets_cap=8):
        """A port as a driver leaves it after boot; `pfc` is a mask, `apps` are (selector, protocol, priority)."""
        if tsa is None:
            tsa = STRICT if driver == "bnxt" else VENDOR
        lines = [f"interface {interface}", f"driver {driver}", f"dcbx {dcbx}", f"pfc 8 {pfc} 7", f"ets-cap {ets_cap}",
                 "prio-tc " + " ".join(map(str, prio_tc)), "tc-bw" + 8 * " 0", "tc-tsa" + 8 * f" {tsa}", "prio-buffer" + 8 * " 0", "buffer-size 262016" + 7 * " 0",
                 f"fail-at {fail_at}", *(f"app {s} {p} {priority}" for s, p, priority in apps)]
        self.path.write_text(self.path.read_text() + "\n".join(lines) + "\n")

    def environment(self, **more):
        return {**os.environ, "LD_PRELOAD": LIBRARY, "DCB_PEER": str(self.path), **more}

    def state(self, interface):
        """{key: text} of the port's lines now; application entries as a sorted list under "app"."""
        with open(self.path) as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # programs write it in place
            text = file.read()
        found, state = False, {"app": []}
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            if key == "interface":
                found = value == interface
            elif found and key == "app":
                state["app"].append(tuple(map(int, value.split())))
            elif found and key != "fail-at":
                state[key] = value.strip()
        return state
