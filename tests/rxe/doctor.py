"""`tensorwire doctor` in the machine, on the kernel's own soft-RoCE: what it reads there is what a kernel really shows.

judge.py runs it in the boot that it makes anyway.
"""
import json

from machine import Failure


class Doctor:
    def __init__(self, machine, program):
        self.machine, self.program = machine, program

    def verdict(self, environment="", memlock="unlimited"):
        """(exit status, report) of a run with those variables and that limit."""
        text = self.machine.shell(f"ulimit -l {memlock}; {environment} {self.program} doctor --json; echo code $?")
        report, _, code = text.rpartition("code ")
        try:
            return int(code), json.loads(report)
        except ValueError:
            raise Failure(f"it does not print JSON: {text}") from None

    def recording(self):
        return self.machine.shell(f"{self.program} doctor record /tmp/recorded >/dev/null; cat /tmp/recorded/tensorwire-host.txt")

    def run(self):
        """One line on success; raises Failure otherwise."""
        code, healthy = self.verdict()
        if (code, healthy["devices"], healthy["findings"]) != (0, ["rxe0"], []):
            raise Failure(f"of a healthy rxe0 it says, exit {code}: {json.dumps(healthy)}")
        # The table of rxe0 begins with the link-local address and is empty at its end.
        for rule, wrong in (("TW-GID-003", {"environment": "NCCL_IB_GID_INDEX=0"}),
                            ("TW-GID-004", {"environment": "NCCL_IB_GID_INDEX=200"}),
                            ("TW-PROC-001", {"environment": "NCCL_IB_TIMEOUT=20", "memlock": 64})):
            code, report = self.verdict(**wrong)
            if code != 2 or [finding["id"] for finding in report["findings"]] != [rule]:
                raise Failure(f"with {wrong}, exit {code}: {json.dumps(report)}")
        text = self.recording()
        for expected in ("rxe0/ports/1/gid_attrs/types/1\tRoCE v2", "$ dmabuf\trxe0 EOPNOTSUPP",
                         "hca_id:\\trxe0", "$ dcb-pfc eth0\t!EOPNOTSUPP", "dev eth0"):
            if expected not in text:
                raise Failure(f"the recording has no {expected!r}:\n{text}")
        return f"healthy, and three faults told apart; {len(text.splitlines())} answers recorded"
