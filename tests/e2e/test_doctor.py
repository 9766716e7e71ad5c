"""`tensorwire doctor`, as a person calls it on this machine."""
import json
import os
import tempfile
import time
import unittest

from harness import EndToEnd, run

VERDICTS = (0, 1, 2)


class Doctor(EndToEnd):
    def test_it_answers_within_two_seconds(self):
        begin = time.monotonic()
        result = run("doctor")
        self.assertLess(time.monotonic() - begin, 2)
        self.assertIn(result.code, VERDICTS, result.err)
        self.assertRegex(result.out.splitlines()[0], r"\d+ errors?, \d+ warnings?, \d+ remarks?")

    def test_a_recording_gives_the_verdict_of_the_host(self):
        with tempfile.TemporaryDirectory() as folder:
            recording = os.path.join(folder, "new")
            result = run("doctor", "record", recording)
            self.assertEqual(result.code, 0, result.err)
            live, recorded = run("doctor", "--json"), run("doctor", "--json", "--root", recording)
            self.assertEqual(live.code, recorded.code)
            ids = [[finding["id"] for finding in json.loads(text.out)["findings"]] for text in (live, recorded)]
            self.assertEqual(*ids)
            with open(os.path.join(recording, "tensorwire-host.txt")) as file:
                self.assertNotIn("HOME=", file.read())
            result = run("doctor", "compare", recording, recording)
            self.assertEqual((result.code, result.out), (0, "2 recordings, 0 differences\n"))

    def test_no_verdict_is_a_status_of_its_own(self):
        result = run("doctor", "--root", "/no/such/folder")
        self.assertEqual(result.code, 3)
        self.assert_one_clear_line(result, "/no/such/folder", "ENOENT")

    def test_rules_are_explained(self):
        result = run("doctor", "explain", "TW-GID-003")
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("link-local", result.out)


if __name__ == "__main__":
    unittest.main()
