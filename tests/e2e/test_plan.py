"""`tensorwire plan` and `tensorwire tune`, as a person calls them."""
import json
import os
import tempfile
import unittest

from harness import EndToEnd, environment, run

COLLECTIVES = ["allreduce", "reducescatter", "allgather", "broadcast", "alltoall", "sendrecv", "barrier"]


def without_tuning(*arguments):
    return run("plan", *arguments, env=environment(TENSORWIRE_TUNE="off"))


class Plan(EndToEnd):
    def test_every_collective_is_explained_and_proved(self):
        for collective in COLLECTIVES:
            with self.subTest(collective):
                result = without_tuning(collective, "--ranks", 5, "--count", 1001, "--explain", "--check")
                self.assertEqual(result.code, 0, result.err)
                self.assertIn("predicted", result.out)
                self.assertEqual(result.out.splitlines()[-1], "proved")

    def test_segments_are_proved(self):
        result = without_tuning("allreduce", "--ranks", 8, "--bytes", "64MiB", "--algorithm", "ring", "--check")
        self.assertEqual((result.code, result.out), (0, "proved\n"), result.err)

    def test_a_counter_example_ends_with_a_status(self):
        one_shot = ["allreduce", "--ranks", 2, "--bytes", "64KiB", "--algorithm", "one-shot", "--check", "--in-place"]
        result = without_tuning(*one_shot)
        self.assertEqual((result.code, result.out), (0, "proved\n"), result.err)
        # In place, the sum may not overwrite what is still being sent.
        result = without_tuning(*one_shot, "--source", "input")
        self.assertEqual(result.code, 1, result.out)
        self.assertRegex(result.out, r"^rank \d, step \d+: it overwrites what step \d+ of rank \d may not have read")

    def test_json(self):
        result = without_tuning("allreduce", "--ranks", 3, "--bytes", "1KiB", "--json", "--check")
        plan = json.loads(result.out)
        self.assertEqual(plan["check"], "proved")
        self.assertEqual(plan["output"], [{"begin": 0, "end": 1024, "value": "(x0 + x1 + x2)"}])
        self.assertGreater(len(plan["candidates"]), 1)

    def test_bad_input(self):
        self.assert_one_clear_line(without_tuning("allfoo"), "allfoo", "all-reduce")
        self.assert_one_clear_line(without_tuning("allreduce", "--bytes", "5"), "fp32")
        self.assert_one_clear_line(without_tuning("allreduce", "--algorithm", "magic"), "magic", "two-shot")


class Tune(EndToEnd):
    def test_what_is_measured_is_kept_and_used(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "new", "tune.toml")
            env = environment(TENSORWIRE_TUNE=file)
            result = run("tune", "--ranks", 2, "--paths", "local", env=env, timeout=100)
            self.assertEqual(result.code, 0, result.err)
            self.assertIn("kept in " + file, result.out)
            with open(file) as written:
                self.assertIn("[topology.2-ranks-", written.read())
            result = run("plan", "allreduce", "--ranks", 2, env=env)
            self.assertIn("predicted (2-ranks-", result.out)

            with open(file, "a") as broken:
                broken.write("this is not TOML\n")
            self.assert_one_clear_line(run("plan", "allreduce", env=env), file, "line")


if __name__ == "__main__":
    unittest.main()
