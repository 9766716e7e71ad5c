"""The summary of a test run counts what ctest wrote, and calls a test that could not start a failure."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/test_summary.py"
CASES = {
    "passes": '<testcase name="passes" status="run"/>',
    "fails": '<testcase name="fails" status="fail"><failure message=""/></testcase>',
    "skips": '<testcase name="skips" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>',
    "absent": '<testcase name="absent" status="notrun"><skipped message="Unable to find executable"/></testcase>',
    "off": '<testcase name="off" status="disabled"/>',
}


class Summary(unittest.TestCase):
    def summarise(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, cases in files.items():
                pathlib.Path(folder, name + ".xml").write_text(
                    "<testsuite>" + "".join(CASES[case] for case in cases) + "</testsuite>")
            done = subprocess.run([sys.executable, SCRIPT, folder], text=True, capture_output=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def test_all_passed(self):
        self.assertEqual(self.summarise(release=["passes", "passes"], asan=["passes"]),
                         (0, ["3 passed, 0 failed, 0 skipped"]))

    def test_failures_and_skips_are_named(self):
        self.assertEqual(self.summarise(release=["passes", "skips", "off"], asan=["fails"]),
                         (1, ["failed: asan: fails", "skipped: release: skips", "skipped: release: off",
                              "1 passed, 1 failed, 2 skipped"]))

    def test_what_could_not_start_has_failed(self):
        self.assertEqual(self.summarise(release=["passes", "absent"]),
                         (1, ["failed: release: absent", "1 passed, 1 failed, 0 skipped"]))

    def test_nothing_passed_is_no_success(self):
        self.assertEqual(self.summarise()[0], 1)
        self.assertEqual(self.summarise(release=["skips"])[0], 1)


if __name__ == "__main__":
    unittest.main()
