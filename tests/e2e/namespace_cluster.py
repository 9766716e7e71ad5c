"""Hosts that are network namespaces, with a switch (a bridge) for a management network and one for each rail. The links can be
shaped, spoilt and cut with the system's own `tc` and `ip`."""
import os
import shutil
import subprocess
import unittest

from harness import PROGRAM, environment

TOOLS = ("unshare", "nsenter", "ip", "tc")
MANAGEMENT, FIRST_RAIL = 0, 1
BOUND_S = 240


def skip_without_cluster():
    if os.geteuid() != 0:
        raise unittest.SkipTest("hosts of their own need root")
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise unittest.SkipTest(f"{tool} is not installed (Debian: util-linux, iproute2)")
    # Not every kernel has netem: what is late is made late by the user-space HCA's own faults.
    probe = ("ip link add name br0 type bridge && ip link add t0 type veth peer name t1 && "
             "tc qdisc replace dev t1 root tbf rate 1mbit burst 32k limit 1m")
    done = subprocess.run(["unshare", "--net", "--uts", "sh", "-c", probe], capture_output=True, text=True)
    if done.returncode != 0:
        raise unittest.SkipTest(f"no network namespace with a bridge and tbf can be had here: {done.stderr.strip()}")


class Cluster:
    """Hosts gpu01, gpu02, ...: eth0 leads to the management network, eth1 and on to the rails (devices soft2 and on)."""

    def __init__(self, hosts, rails=1):
        self.names = [f"gpu{number:02}" for number in range(1, hosts + 1)]
        self.rails = rails
        self.devices = ",".join(f"soft{2 + rail}" for rail in range(rails))
        self.holders = [self._hold("switch")] + [self._hold(name) for name in self.names]
        for net in range(rails + 1):
            self.on_switch("ip", "link", "add", f"net{net}", "mtu", 9000, "type", "bridge")
            self.on_switch("ip", "link", "set", f"net{net}", "up")
        for host, name in enumerate(self.names):
            self.on(host, "ip", "link", "set", "lo", "up")
            for net in range(rails + 1):
                port = f"{name}e{net}"
                self.on_switch("ip", "link", "add", port, "mtu", 9000, "type", "veth", "peer", "name", f"eth{net}", "mtu", 9000,
                               "netns", self.holders[host + 1].pid)
                self.on_switch("ip", "link", "set", port, "master", f"net{net}", "up")
                self.on(host, "ip", "addr", "add", f"{self.address(host, net)}/24", "dev", f"eth{net}")
                self.on(host, "ip", "link", "set", f"eth{net}", "up")

    def address(self, host, net=MANAGEMENT):
        return f"10.91.{net}.{host + 1}"

    @staticmethod
    def _hold(name):
        holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname {name}; echo ready; exec sleep 900"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if holder.stdout.readline() != "ready\n":
            raise AssertionError(holder.communicate(timeout=10)[1])
        return holder

    def _enter(self, holder, words):
        return ["nsenter", "--target", str(holder.pid), "--net", "--uts", *map(str, words)]

    def on_switch(self, *words):
        subprocess.run(self._enter(self.holders[0], words), check=True, capture_output=True, timeout=30)

    def on(self, host, *words):
        subprocess.run(self._enter(self.holders[host + 1], words), check=True, capture_output=True, timeout=30)

    def shape(self, host, net, *what):
        """A queueing discipline for what leaves `host` by that interface."""
        self.on(host, "tc", "qdisc", "replace", "dev", f"eth{net}", "root", *what)

    def lose_way(self, host, other, net):
        """What `host` sends to `other` goes to a card that is not there."""
        self.on(host, "ip", "neigh", "replace", self.address(other, net), "lladdr", "02:00:00:00:00:99", "dev", f"eth{net}", "nud",
                "permanent")

    def heal(self):
        for host in range(len(self.names)):
            for net in range(self.rails + 1):
                subprocess.run(self._enter(self.holders[host + 1], ["tc", "qdisc", "del", "dev", f"eth{net}", "root"]),
                               capture_output=True)
                self.on(host, "ip", "neigh", "flush", "dev", f"eth{net}", "nud", "permanent")

    def start(self, host, command, env=None):
        return subprocess.Popen(self._enter(self.holders[host + 1], command), env=env or environment(), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def start_ranks(self, *command, ranks=None, only_first=(), env=None):
        """The same command on every host (or on `ranks`), rank 0 with `only_first` besides."""
        jobs = {}
        for rank in ranks if ranks is not None else range(len(self.names)):
            words = [os.path.abspath(PROGRAM), *command, "--rank", rank, "--world-size", len(self.names), "--master-addr",
                     self.address(0), *(only_first if rank == 0 else ())]
            jobs[rank] = self.start(rank, words, env(rank) if env else None)
        return jobs

    @staticmethod
    def finish(jobs):
        """{rank: (exit status, stdout, stderr)}; whoever still runs at the bound is killed."""
        try:
            said = {rank: job.communicate(timeout=BOUND_S) for rank, job in jobs.items()}
        finally:
            for job in jobs.values():
                if job.poll() is None:
                    job.kill()
                    job.communicate()
        return {rank: (jobs[rank].returncode, *output) for rank, output in said.items()}

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.communicate()
