"""The ranks of one way: started once, then given orders over a socket, so that ways can take turns within milliseconds.

Every wait has a bound. Whatever was started is killed at the end, with all that it started.
"""
import os
import pathlib
import select
import signal
import socket
import subprocess
import time

SET_UP_S = 60
DEAF = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # of a launcher around us


class Failed(Exception):
    """In one line, what went wrong with which way."""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Ranks:
    def __init__(self, way, programs, ranks, folder):
        self.way, self.count, self.processes, self.ranks = way, ranks, [], []
        folder = pathlib.Path(folder)
        folder.mkdir()
        self.log = open(folder / "stderr", "w+", encoding="utf-8", errors="replace")
        start_line = folder / "start_line"
        start_line.write_bytes(bytes(4096))
        (folder / "store").mkdir()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "orders"))
        self.listener.listen(ranks)
        own = {"VERSUS_START_LINE": start_line, "VERSUS_ORDERS": folder / "orders", "VERSUS_STORE": folder / "store"}
        around = {k: v for k, v in os.environ.items() if k not in DEAF}
        for command, variables in way.commands(programs, ranks, free_port()):
            environment = {**around, **{k: str(v) for k, v in {**own, **variables}.items()}}
            self.processes.append(subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL,
                                                   stdout=self.log, stderr=self.log, start_new_session=True))
        try:
            self.meet()
        except BaseException:
            self.close()
            raise

    def meet(self):
        """Each rank says hello when its library is up."""
        until = time.monotonic() + SET_UP_S
        found = {}
        while len(found) < self.count:
            self.wait_for(self.listener, until)
            connection, _ = self.listener.accept()
            stream = connection.makefile("rw", encoding="utf-8")
            self.wait_for(connection, until)
            _, rank, _, description = self.line_of(stream).split(" ", 3)
            found[int(rank)] = (connection, stream, description)
        self.ranks = [found[rank] for rank in sorted(found)]
        self.description = self.ranks[0][2]

    def wait_for(self, descriptor, until):
        while not select.select([descriptor], [], [], 0.1)[0]:
            if any(process.poll() not in (None, 0) for process in self.processes):
                raise Failed(f"{self.way.name}: a rank ended: {self.last_words()}")
            if time.monotonic() > until:
                raise Failed(f"{self.way.name}: no answer in time: {self.last_words()}")

    def line_of(self, stream):
        line = stream.readline()
        if not line.endswith("\n"):
            raise Failed(f"{self.way.name}: a rank went away: {self.last_words()}")
        return line[:-1]

    def last_words(self):
        self.log.seek(0)
        return " | ".join(line.strip() for line in self.log.read().splitlines()[-3:]) or "it said nothing"

    def run(self, size, iterations, warmup, first, plant, huge, bound_s):
        """One turn: {"wrong", "path", "counters", "times": the slowest rank's nanoseconds of each iteration}."""
        until = time.monotonic() + bound_s
        for rank, (_, stream, _) in enumerate(self.ranks):
            stream.write(f"run {size} {iterations} {warmup} {first} {plant if rank == 0 else -1} {int(huge)}\n")
            stream.flush()
        result = {"wrong": 0, "path": "", "counters": {}, "times": [0] * iterations}
        for connection, stream, _ in self.ranks:
            self.wait_for(connection, until)
            for line in iter(lambda: self.line_of(stream), "done"):
                self.take(result, line)
        return result

    @staticmethod
    def take(result, line):
        kind, _, rest = line.partition(" ")
        if kind == "wrong":
            result["wrong"] += int(rest)
        elif kind == "path":
            result["path"] = rest
        elif kind == "counter":
            name, value = rest.split()
            result["counters"][name] = result["counters"].get(name, 0) + int(value)
        elif kind == "times":
            result["times"] = [max(pair) for pair in zip(result["times"], map(int, rest.split()))]

    def close(self):
        for _, stream, _ in self.ranks:
            try:
                stream.write("end\n")
                stream.flush()
            except OSError:
                pass
        until = time.monotonic() + 5
        while time.monotonic() < until and any(process.poll() is None for process in self.processes):
            time.sleep(0.02)
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.listener.close()
        self.log.close()
