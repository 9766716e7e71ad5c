"""Makes the tarball, unpacks it in an empty folder and uses it there with a scrubbed environment.

Nothing may be needed but glibc and what the tarball holds: neither at link level nor by what is opened at run time.
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TW_BUILD_DIR", PROJECT / "build/release"))
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
SCRUBBED = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C"}


def output(*command, **extra):
    done = subprocess.run([str(c) for c in command], text=True, capture_output=True, timeout=90,
                          stdin=subprocess.DEVNULL, **extra)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def make_package(into):
    """The path of a tarball made from the build folder."""
    return pathlib.Path(into, pathlib.Path(output(PROJECT / "scripts/package.sh", BUILD, into, cwd=PROJECT).strip()).name)


class Tarball(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.tarball = make_package(cls.folder.name)
        elsewhere = pathlib.Path(cls.folder.name, "a place nobody knew when it was built")
        elsewhere.mkdir()
        output("tar", "-xzf", cls.tarball, "-C", elsewhere)
        (cls.root,) = elsewhere.iterdir()
        cls.program = cls.root / "bin/tensorwire"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def binaries(self):
        found = [p for p in self.root.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
        self.assertIn(self.program, found)
        return found

    def run_program(self, *arguments, **variables):
        return subprocess.run([str(self.program), *arguments], env={**SCRUBBED, **variables}, cwd="/", text=True,
                              capture_output=True, timeout=90, stdin=subprocess.DEVNULL)

    def test_holds_what_a_user_needs(self):
        for path in ("lib/tensorwire/libibverbs.so.1", "lib/tensorwire/libibverbs.so", "lib/tensorwire/bundled/libisal.so.2",
                     "lib/tensorwire/nccl/libnccl.so.2", "share/doc/tensorwire/README.md", "share/doc/tensorwire/LICENSE",
                     "share/doc/tensorwire/third-party"):
            self.assertTrue((self.root / path).exists(), path)

    def test_links_glibc_and_itself_only(self):
        bundled = {p.name for p in (self.root / "lib").rglob("*")}
        for binary in self.binaries():
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-dW", binary)))
            self.assertEqual(needed - GLIBC - bundled, set(), binary.name)

    def test_search_paths_stay_inside(self):
        for binary in self.binaries():
            for entry in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", output("readelf", "-dW", binary)):
                for path in entry.split(":"):
                    self.assertTrue(path.startswith("$ORIGIN"), f"{binary.name}: {path}")

    def test_the_loader_resolves_bundled_libraries_inside(self):
        for binary in self.binaries():
            for name, path in re.findall(r"(\S+) => (.*) \(0x", output("ldd", binary, env=SCRUBBED)):
                if name not in GLIBC:
                    self.assertTrue(path.startswith(str(self.root)), f"{binary.name}: {name} => {path}")
            self.assertNotIn("not found", output("ldd", binary, env=SCRUBBED))

    def test_says_its_version(self):
        done = self.run_program("--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\d+\.\d+\.\d+")

    def test_runs_an_all_reduce_with_libraries_from_the_folder_only(self):
        done = self.run_program("bench", "decode", "--device", "soft", "--layers", "1", "--tokens", "1",
                                "--verify-tokens", "1", "--gap-us", "0", LD_DEBUG="files")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-4000:])
        opened = set(re.findall(r"calling init: (\S.*)$", done.stderr, re.MULTILINE))
        self.assertTrue(any(p.endswith("/libibverbs.so.1") for p in opened), opened)
        for path in opened:
            if pathlib.Path(path).name not in GLIBC:
                self.assertTrue(path.startswith(str(self.root)), path)

    def test_the_same_build_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as again:
            self.assertEqual(make_package(again).read_bytes(), self.tarball.read_bytes())


if __name__ == "__main__":
    unittest.main()
