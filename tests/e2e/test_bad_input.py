"""What bad input and bad luck get: the right result, or one clear line and a non-zero exit, within a bound."""
import os
import signal
import socket
import subprocess
import time
import unittest

from harness import QUICK, Background, EndToEnd, decode, environment, run

LONG = ["--tokens", "100000", "--verify-tokens", "0", "--gap-us", "75"]


class Flags(EndToEnd):
    def test_unknown_flag(self):
        self.assert_one_clear_line(run("bench", "decode", "--no-such-flag"), "--no-such-flag")

    def test_unknown_model(self):
        self.assert_one_clear_line(decode("--model", "gpt-9"), "gpt-9", "llama-3.1-70b")

    def test_unknown_device(self):
        self.assert_one_clear_line(decode("--device", "mlx5_7", *QUICK), "mlx5_7")

    def test_unknown_soft_device(self):
        self.assert_one_clear_line(decode("--device", "soft99", *QUICK), "soft99")

    def test_empty_gid_index(self):
        self.assert_one_clear_line(decode("--gid-index", 0, *QUICK), "GID", "0")

    def test_a_fault_that_does_not_exist(self):
        self.assert_one_clear_line(decode(*QUICK, env=environment(TENSORWIRE_FAULTS="explode=1%")), "explode", "drop")

    def test_an_output_that_cannot_be_written(self):
        self.assert_one_clear_line(run("bench", "decode", *QUICK, "--json", "/no/such/folder/x.json"), "/no/such/folder/x.json")


class Rendezvous(EndToEnd):
    def ranks(self, *environments, arguments=()):
        started = [subprocess.Popen([os.environ["TENSORWIRE_BIN"], "bench", "decode", *QUICK, *arguments], env=environment(**env), text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for env in environments]
        return [(p.communicate(timeout=60), p.returncode) for p in started]

    def rank(self, rank, world, port, **more):
        return dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **more)

    def test_world_sizes_that_disagree(self):
        results = self.ranks(self.rank(0, 2, 29621), self.rank(1, 3, 29621), arguments=("--timeout", "5"))
        for (_, err), code in results:
            self.assertNotEqual(code, 0)
        self.assertTrue(any("world size" in err and "2" in err and "3" in err for (_, err), _ in results), results)

    def test_a_rank_that_never_comes_is_named(self):
        started = time.monotonic()
        [((_, err), code)] = self.ranks(self.rank(0, 2, 29622), arguments=("--timeout", "3"))
        self.assertNotEqual(code, 0)
        self.assertIn("rank 1", err)
        self.assertLess(time.monotonic() - started, 15)

    def test_a_wrong_secret(self):
        results = self.ranks(self.rank(0, 2, 29623, TENSORWIRE_SECRET="one-secret"), self.rank(1, 2, 29623, TENSORWIRE_SECRET="another"),
                             arguments=("--timeout", "5"))
        for (_, err), code in results:
            self.assertNotEqual(code, 0)
            self.assertNotIn("one-secret", err)
            self.assertNotIn("another", err)


class Deaths(EndToEnd):
    def test_a_killed_rank_is_named_within_three_seconds(self):
        for path in ("local", "roce", "tcp"):
            for victim in (0, 1, 2):
                with self.subTest(path=path, victim=victim), Background(3, "--paths", path, *LONG) as job:
                    job.signal(victim, signal.SIGKILL)
                    code, _, err, seconds = job.finish(timeout=30)
                    self.assertNotEqual(code, 0)
                    naming = [line for line in err.splitlines() if f"rank {victim}" in line]
                    self.assertGreaterEqual(len(naming), 2, err)
                    self.assertLess(seconds, 3.5, err)

    def test_a_rank_that_hangs_is_proved_dead_by_the_transport(self):
        """Stopped, not killed: its bootstrap connection stays open, so only the transport's retry limit can tell; where it
        stopped between operations, the bound of the rendezvous (--timeout) does."""
        for path in ("local", "roce"):
            with self.subTest(path=path), Background(2, "--paths", path, "--timeout", "6", *LONG) as job:
                job.signal(1, signal.SIGSTOP)
                started = time.monotonic()
                while job.process.poll() is None and time.monotonic() - started < 15:
                    try:
                        os.kill(job.ranks[0], 0)
                        with open(f"/proc/{job.ranks[0]}/stat", encoding="ascii") as stat:
                            if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                                break
                    except (ProcessLookupError, FileNotFoundError):
                        break
                    time.sleep(0.02)
                self.assertLess(time.monotonic() - started, 12)
                job.signal(1, signal.SIGKILL)
                code, _, err, _ = job.finish(timeout=30)
                self.assertNotEqual(code, 0)
                self.assertIn("rank 1", err)

    def test_fifty_milliseconds_of_silence_cost_no_retransmission(self):
        """A process that was descheduled must not send again what its peer has already taken."""
        with Background(2, "--paths", "roce", "--tokens", "40", "--verify-tokens", "0", "--gap-us", "0", "--json", "/dev/stdout") as job:
            for rank in (0, 1, 0, 1):
                job.signal(rank, signal.SIGSTOP)
                time.sleep(0.05)
                job.signal(rank, signal.SIGCONT)
                time.sleep(0.05)
            code, out, err, _ = job.finish(timeout=120)
            self.assertEqual(code, 0, err)
            self.assertIn('"retransmissions": 0', out)


class Sockets(EndToEnd):
    def test_port_4791_taken(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("0.0.0.0", 4791))
            self.assert_one_clear_line(decode("--ranks", 2, "--paths", "roce", *QUICK), "4791")

    def test_a_stock_receive_buffer_with_four_ranks(self):
        result = decode("--ranks", 4, "--paths", "roce", *QUICK, env=environment(TENSORWIRE_RCVBUF=212992))
        self.assert_verified(result, ranks=4)


class Faults(EndToEnd):
    def survive(self, faults, **kwargs):
        result = decode("--ranks", 2, "--paths", "roce", *QUICK, env=environment(TENSORWIRE_FAULTS=faults), timeout=120, **kwargs)
        self.assert_verified(result, ranks=2)
        return result

    def test_dropped_duplicated_reordered_corrupted(self):
        for rate in ("1%", "5%"):
            for fault in ("drop", "dup", "reorder", "corrupt"):
                with self.subTest(fault=fault, rate=rate):
                    result = self.survive(f"{fault}={rate},seed=11")
                    if fault in ("drop", "corrupt"):
                        self.assertGreater(self.path(result, "roce")["retransmissions"], 0)

    def test_everything_at_once(self):
        self.survive("drop=1%,dup=1%,reorder=1%,corrupt=1%,delay=1%:200us,seed=3")

    def test_late_dma(self):
        """The source is read only when the packet leaves: an operation that lets go of it too early would send other bytes."""
        self.survive("late_dma=300us,seed=5")


if __name__ == "__main__":
    unittest.main()
