"""What ranks write about themselves: traces, metrics, flight records, structured logs."""
import json
import pathlib
import signal
import sys
import tempfile
import time
import unittest

from harness import QUICK, Background, EndToEnd, decode, environment, run, wait_for

# Debian's module is plain Python: another interpreter may use it as well.
sys.path.append("/usr/lib/python3/dist-packages")
try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

JOB = ["--ranks", 2, "--paths", "roce", "--algorithm", "two-shot", *QUICK]
# Tokens so long that no rank comes to the end of one.
ENDLESS = ["--paths", "roce", "--tokens", 1000, "--verify-tokens", 0, "--layers", 2000, "--hidden", 8192, "--gap-us", 0]
OPERATIONS = 18  # two tokens of 8 all-reduces, and two more to warm up


class InFolder(EndToEnd):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name):
        return self.folder / name


class Trace(InFolder):
    def trace(self, ranks=2):
        job = ["--ranks", ranks, *JOB[2:]]
        self.assert_verified(decode(*job, env=environment(TENSORWIRE_TRACE=self.file("t.json"))), ranks=ranks)
        return [self.file(f"t.rank{rank}.json") for rank in range(ranks)]

    def events(self, path, **wanted):
        events = json.loads(path.read_text())["traceEvents"]
        return [event for event in events if all(event.get(key) == value for key, value in wanted.items())]

    def test_every_rank_records_steps_writes_completions_and_reductions(self):
        for rank, path in enumerate(self.trace()):
            operations = self.events(path, cat="operation")
            self.assertEqual(len(operations), OPERATIONS)
            self.assertEqual([event["args"]["operation"] for event in operations], list(range(OPERATIONS)))
            for event in operations:
                self.assertEqual(event["pid"], rank)
                self.assertEqual(event["args"]["bytes"], 262144)
                self.assertEqual(event["args"]["algorithm"], "two-shot")
                self.assertEqual(event["args"]["state"], "done")
            reductions = self.events(path, cat="step", name="reduce")
            self.assertEqual(len(reductions), OPERATIONS)
            self.assertTrue(all(event["dur"] > 0 for event in reductions))
            # A write of each half of the plan, announced once at each end.
            writes = self.events(path, cat="work request", name=f"write to {1 - rank}")
            self.assertEqual(len(writes), 2 * OPERATIONS)
            self.assertEqual(sorted(event["args"]["sequence"] for event in writes), sorted(list(range(OPERATIONS)) * 2))
            self.assertEqual(len(self.events(path, cat="completion", name=f"arrival from {1 - rank}")), 2 * OPERATIONS)
            # Everything of an operation lies within it.
            spans = {event["args"]["operation"]: (event["ts"], event["ts"] + event["dur"]) for event in operations}
            for event in reductions:
                begun, ended = spans[event["args"]["operation"]]
                self.assertLessEqual(begun - 0.002, event["ts"])
                self.assertLessEqual(event["ts"] + event["dur"], ended + 0.002)

    def test_merged_on_one_clock(self):
        traces = self.trace(ranks=3)
        merged = self.file("all.json")
        result = run("trace", "merge", *traces, "-o", merged)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.out.count("by messages"), 3, result)
        sent = {event["id"]: event["ts"] for event in self.events(merged, ph="s")}
        arrived = {event["id"]: event["ts"] for event in self.events(merged, ph="f")}
        self.assertEqual(set(sent), set(arrived))
        self.assertEqual(len(sent), 3 * 2 * 2 * OPERATIONS)
        for message, at in sent.items():
            self.assertGreaterEqual(arrived[message], at - 0.002, message)
        self.assertEqual({event["pid"] for event in self.events(merged)}, {0, 1, 2})

    def test_merge_refuses_what_it_cannot_use(self):
        first, _ = self.trace()
        self.file("bad.json").write_text('{"traceEvents":[]}')
        self.assert_one_clear_line(run("trace", "merge", first, first, "-o", self.file("o")), "same rank", "t.rank0.json")
        self.assert_one_clear_line(run("trace", "merge", first, self.file("bad.json"), "-o", self.file("o")), "bad.json",
                                   "not a trace")
        self.assertFalse(self.file("o").exists())

    def test_a_small_ring_keeps_the_end(self):
        env = environment(TENSORWIRE_TRACE=self.file("t%r.json"), TENSORWIRE_TRACE_EVENTS=50)
        self.assert_verified(decode(*JOB, env=env))
        trace = json.loads(self.file("t0.json").read_text())
        self.assertEqual(len([event for event in trace["traceEvents"] if event["ph"] == "X"]), 50)
        self.assertGreater(trace["otherData"]["events_dropped"], 0)
        self.assertEqual(self.events(self.file("t0.json"), cat="operation")[-1]["args"]["operation"], OPERATIONS - 1)

    def test_a_trace_that_cannot_be_written_harms_nobody(self):
        result = decode(*JOB, env=environment(TENSORWIRE_TRACE=self.file("nowhere/t.json")))
        self.assert_verified(result)
        self.assertIn("the trace is not written", result.err)


@unittest.skipIf(text_string_to_metric_families is None, "python3-prometheus-client is not installed")
class Metrics(InFolder):
    def samples(self, path):
        """{name: [(labels, value)]}; the parser refuses what is not in the format."""
        samples = {}
        for family in text_string_to_metric_families(path.read_text()):
            self.assertTrue(family.documentation, family.name)
            self.assertNotEqual(family.type, "unknown", family.name)
            for sample in family.samples:
                self.assertTrue(sample.name.startswith("tensorwire_"))
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
        return samples

    def test_prometheus_can_read_them(self):
        self.assert_verified(decode(*JOB, env=environment(TENSORWIRE_METRICS=self.file("m.prom"))))
        for rank in range(2):
            samples = self.samples(self.file(f"m.rank{rank}.prom"))
            size = {"rank": str(rank), "communicator": "0", "collective": "all-reduce", "size": "262144"}
            self.assertEqual(samples["tensorwire_operations_total"], [(size, OPERATIONS)])
            self.assertEqual(samples["tensorwire_operation_bytes_total"], [(size, OPERATIONS * 262144)])
            quantiles = {labels["quantile"]: value for labels, value in samples["tensorwire_operation_seconds"]}
            longest = samples["tensorwire_operation_longest_seconds"][0][1]
            self.assertTrue(0 < quantiles["0.5"] <= quantiles["0.99"] <= longest * 1.001, quantiles)
            peer, waited = samples["tensorwire_peer_waited_seconds_total"][0]
            self.assertEqual(peer["peer"], str(1 - rank))
            self.assertGreater(waited, 0)
            self.assertGreater(samples["tensorwire_peer_bytes_sent_total"][0][1], OPERATIONS * 262144)
            events = {labels["counter"]: value for labels, value in samples["tensorwire_device_events_total"]}
            self.assertGreaterEqual(events["port_xmit_packets"], OPERATIONS * 64)
            self.assertEqual(samples["tensorwire_failed"][0][1], 0)

    def test_lost_packets_are_counted(self):
        env = environment(TENSORWIRE_METRICS=self.file("m.prom"), TENSORWIRE_FAULTS="drop=1%,seed=3")
        self.assert_verified(decode(*JOB, env=env))
        sent_again = [self.samples(self.file(f"m.rank{rank}.prom"))["tensorwire_retransmissions_total"][0][1] for rank in range(2)]
        self.assertGreater(sum(sent_again), 0)

    def running_seconds(self, rank):
        path = self.file(f"m.rank{rank}.prom")
        return self.samples(path)["tensorwire_operation_running_seconds"][0][1] if path.exists() else 0

    def stop_among_operations(self, job, victim, others):
        """Stops a rank so that the others wait for it in an all-reduce: between two batches of these, where inputs are
        made, they would wait in a barrier instead, and the rank is let go for another try."""
        for _ in range(40):
            time.sleep(0.1)
            job.signal(victim, signal.SIGSTOP)
            time.sleep(0.4)  # several intervals of the metrics
            if all(self.running_seconds(rank) > 0.15 for rank in others):
                return
            job.signal(victim, signal.SIGCONT)
        self.fail("the rank was never stopped in the middle of an all-reduce")

    def test_a_straggler_is_named_while_it_is_waited_for(self):
        env = environment(TENSORWIRE_METRICS=self.file("m.prom"), TENSORWIRE_METRICS_INTERVAL="100ms")
        # Over TCP: RDMA gives a stopped process up before it is called a straggler.
        with Background(3, "--paths", "tcp", *ENDLESS[2:], env=env) as job:
            self.stop_among_operations(job, 1, (0, 2))
            for rank in (0, 2):
                def straggler(path=self.file(f"m.rank{rank}.prom")):
                    return [labels["peer"] for labels, _ in self.samples(path).get("tensorwire_waiting_for_peer", [])]
                # Who first found it waits for it; the other may wait for that one in turn.
                self.assertIn(wait_for(straggler, 20, f"rank {rank}'s metrics naming a straggler")[0], {"1", str(2 - rank)})
                self.assertGreater(self.running_seconds(rank), 0.9)


class FlightRecord(InFolder):
    def test_every_survivor_writes_its_last_operations(self):
        records = self.file("records")
        env = environment(TENSORWIRE_FLIGHT_RECORD=records)
        with Background(3, *ENDLESS, env=env) as job:
            time.sleep(0.5)
            job.signal(1, signal.SIGKILL)
            code, _, err, _ = job.finish(30)
        self.assertNotEqual(code, 0)
        written = {int(path.name.split(".")[1].removeprefix("rank")): path for path in records.iterdir()}
        self.assertEqual(set(written), {0, 2}, err)
        for rank, path in written.items():
            failure, *operations = [json.loads(line) for line in path.read_text().splitlines()]
            self.assertEqual((failure["rank"], failure["ranks"], failure["rank_to_blame"]), (rank, 3, 1))
            self.assertIn("rank 1", failure["error"])
            self.assertLessEqual(len(operations), 64)
            numbers = [operation["operation"] for operation in operations]
            self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
            # It may have been killed between two operations.
            self.assertEqual([operation["state"] for operation in operations[:-1]], ["done"] * (len(operations) - 1))
            for operation in operations:
                self.assertEqual((operation["collective"], operation["bytes"], operation["dtype"], operation["op"]),
                                 ("all-reduce", 262144, "fp16", "sum"))
                self.assertGreater(operation["took_us"], 0)

    def test_without_a_folder_one_line_says_how(self):
        with Background(2, *ENDLESS) as job:
            job.signal(1, signal.SIGKILL)
            _, _, err, _ = job.finish(30)
        lines = [line for line in err.splitlines() if "TENSORWIRE_FLIGHT_RECORD" in line]
        self.assertEqual(len(lines), 1, err)
        self.assertRegex(lines[0], "rank 0: failed (in|after) all-reduce")


class Log(EndToEnd):
    def test_json_lines(self):
        result = decode(*JOB, env=environment(TENSORWIRE_LOG="info", TENSORWIRE_LOG_FORMAT="json"))
        self.assert_verified(result)
        lines = [json.loads(line) for line in result.err.splitlines() if line.startswith("{")]
        self.assertTrue(any("wait policy" in line["message"] for line in lines), result)
        for line in lines:
            self.assertEqual(line["level"], "info")
            self.assertGreater(line["process"], 0)
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
        self.assertGreaterEqual(len({line["process"] for line in lines}), 2)
