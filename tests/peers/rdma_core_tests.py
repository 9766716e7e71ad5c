"""rdma-core's own tests (pyverbs, Debian's python3-pyverbs) on the drop-in library.

They skip what a device does not have. Everything that they run must pass, but for what is named below.
Exits 0, 1 with what went wrong, or 77 when they are not installed. TW_BUILD_DIR names the build folder.
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("TW_BUILD_DIR", "build/release"))
LIBRARIES = BUILD / "lib/tensorwire"
INSTALLED = pathlib.Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # pyverbs is built for the system's
BOUND = 60  # seconds, for one module
SKIPPED = 77
MODULES = ("addr", "atomic", "cq", "cq_events", "cqex", "device", "fork", "mr", "odp", "parent_domain", "pd", "qp", "qpex",
           "relaxed_ordering", "shared_pd")
LEAST_PASSED = 75
EXPECTED = {
    "test_query_gid_ex": "asks for GID index 0, which is empty without an address that stands there",
    "test_imported_rc_ex_rdma_write": "duplicates the kernel's device file, which this device has not",
}


def unpack(folder):
    for source in INSTALLED.iterdir():
        if source.suffix == ".gz":
            (folder / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
        elif source.is_file():
            shutil.copy(source, folder)


def run(module, folder):
    """(passed, names of failed tests, output) of one module."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENSORWIRE_")}
    done = subprocess.run([PYTHON, "tests/run_tests.py", "--dev", "soft0", "--gid", "1", "-v", f"tests.test_{module}"],
                          cwd=folder, env={**kept, "LD_LIBRARY_PATH": str(LIBRARIES.resolve())}, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BOUND)
    ran = re.search(r"^Ran (\d+) tests?", done.stdout, re.MULTILINE)
    if ran is None:
        return 0, {f"{module} did not run"}, done.stdout
    skipped = re.search(r"skipped=(\d+)", done.stdout)
    failed = set(re.findall(r"^(?:ERROR|FAIL): (\w+)", done.stdout, re.MULTILINE))
    return int(ran[1]) - int(skipped[1] if skipped else 0) - len(failed), failed, done.stdout


def main():
    known = subprocess.run([PYTHON, "-c", "import pyverbs"], capture_output=True, check=False)
    if known.returncode != 0 or not INSTALLED.is_dir():
        print("SKIPPED: pyverbs is not installed (package python3-pyverbs)")
        return SKIPPED
    passed = 0
    unexpected = []
    with tempfile.TemporaryDirectory() as folder:
        tests = pathlib.Path(folder) / "tests"
        tests.mkdir()
        unpack(tests)
        for module in MODULES:
            good, failed, output = run(module, folder)
            passed += good
            print(f"{module}: {good} passed" + "".join(f", {name} failed" for name in sorted(failed)))
            if failed - EXPECTED.keys():
                unexpected += sorted(failed - EXPECTED.keys())
                print(output)
    print(f"{passed} passed")
    if unexpected or passed < LEAST_PASSED:
        print(f"FAILED: {', '.join(unexpected) or f'only {passed} passed, not {LEAST_PASSED}'}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
