"""`tensorwire doctor`, as a person calls it on this machine."""
import json
import os
import pathlib
import re
import tempfile
import time
import unittest

from harness import PROGRAM, EndToEnd, environment, run

VERDICTS = (0, 1, 2)
PROGRAM_PATH = os.path.abspath(PROGRAM)


def ids_of(report):
    return [finding["id"] for finding in report["findings"]]


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

    def test_the_json_is_as_documented(self):
        report = json.loads(run("doctor", "--json").out)
        self.assertEqual({"version", "devices", "in_container", "hidden", "findings", "unknown"}, set(report))
        self.assertEqual(1, report["version"])
        for finding in report["findings"]:
            self.assertEqual({"id", "severity", "confidence", "subject", "evidence", "cause", "remedy"}, set(finding))
            self.assertIn(finding["severity"], ("error", "warning", "info"))
            self.assertIn(finding["confidence"], ("certain", "likely", "possible"))
        for unknown in report["unknown"]:
            self.assertEqual({"id", "fact", "why"}, set(unknown))

    def test_the_user_space_hca_is_examined_as_any_other(self):
        result = run("soft", "--", PROGRAM_PATH, "doctor", "--json")
        self.assertIn(result.code, VERDICTS, result.err)
        report = json.loads(result.out)
        self.assertIn("soft0", report["devices"])
        self.assertNotIn("TW-DEV-009", ids_of(report))
        for index, rule in ((1, None), (15, "TW-GID-004"), ("auto", "TW-GID-008")):
            result = run("soft", "--", PROGRAM_PATH, "doctor", "--json", env=environment(NCCL_IB_GID_INDEX=index))
            gid_rules = {one for one in ids_of(json.loads(result.out)) if one.startswith("TW-GID-")}
            self.assertEqual({rule} if rule else set(), gid_rules, index)

    def test_a_thousand_recordings_are_compared_within_ten_seconds(self):
        with tempfile.TemporaryDirectory() as folder:
            run("soft", "--", PROGRAM_PATH, "doctor", "record", os.path.join(folder, "0000"))
            source = pathlib.Path(folder, "0000", "tensorwire-host.txt").read_text()
            names = [f"{number:04}" for number in range(1000)]
            for name in names:
                os.makedirs(os.path.join(folder, name), exist_ok=True)
                text = source
                if name in ("0017", "0400"):
                    text = re.sub("(= /proc/sys/kernel/osrelease\t).*", "\\g<1>5.4.0-odd\\\\n", source)
                pathlib.Path(folder, name, "tensorwire-host.txt").write_text(text)
            result = run("doctor", "compare", "--json", *(os.path.join(folder, name) for name in names))
            self.assertLess(result.seconds, 10)
            report = json.loads(result.out)
            self.assertEqual(1000, report["recordings"])
            kernel, = report["differences"]
            self.assertEqual(("kernel", 998), (kernel["property"], kernel["agreeing"]))
            self.assertEqual([os.path.join(folder, name) for name in ("0017", "0400")], kernel["outliers"][0]["hosts"])

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
