"""`tensorwire doctor` in the machine, on the kernel's own soft-RoCE: what it reads there is what a kernel really shows.

judge.py runs it in the boot that it makes anyway.
"""
import json

from machine import Failure

PROGRAM = "/bin/tensorwire"


class Doctor:
    def __init__(self, machine):
        self.machine = machine

    def verdict(self, environment=""):
        """(exit status, report) of a run with those variables."""
        text = self.machine.shell(f"{environment} {PROGRAM} doctor --json; echo code $?")
        report, _, code = text.rpartition("code ")
        return int(code), json.loads(report)

    def recording(self):
        return self.machine.shell(f"{PROGRAM} doctor record /tmp/recorded >/dev/null; cat /tmp/recorded/tensorwire-host.txt")

    def run(self):
        """One line on success; raises Failure otherwise."""
        code, healthy = self.verdict()
        if (code, healthy["devices"], healthy["findings"]) != (0, ["rxe0"], []):
            raise Failure(f"of a healthy rxe0 it says, exit {code}: {json.dumps(healthy)}")
        # The table of rxe0 begins with the link-local address and is empty at its end.
        for index, rule in ((0, "TW-GID-003"), (200, "TW-GID-004")):
            code, report = self.verdict(f"NCCL_IB_GID_INDEX={index}")
            if code != 2 or [finding["id"] for finding in report["findings"]] != [rule]:
                raise Failure(f"with GID index {index}, exit {code}: {json.dumps(report)}")
        text = self.recording()
        for expected in ("= /sys/class/infiniband/rxe0/ports/1/gid_attrs/types/200\t!", "$ dmabuf\trxe0 EOPNOTSUPP",
                         "hca_id:\\trxe0", "RoCE v2", "dev eth0"):
            if expected not in text:
                raise Failure(f"the recording has no {expected!r}:\n{text}")
        return f"healthy, and two wrong GID indexes told apart; {len(text.splitlines())} answers recorded"
