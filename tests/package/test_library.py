"""Installs the build into an empty folder and uses libtensorwire from there as another project does.

find_package, pkg-config, the headers in C11 and C++20 under strict warnings, what the library exports, and the examples,
which run as two ranks.
"""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

from test_package import BUILD, GLIBC, PROJECT, SCRUBBED, output

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name, "a prefix with blanks")
        output("cmake", "--install", BUILD, "--prefix", cls.root)
        cls.library = cls.root / "lib/libtensorwire.so"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_ranks(self, program, ranks=2, **variables):
        """Exit codes and outputs of `program`, started as a launcher does."""
        port = str(free_port())
        processes = [
            subprocess.Popen([str(program)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env={**SCRUBBED, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                                  "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                                  "TENSORWIRE_DEVICE": "soft", **variables})
            for rank in range(ranks)]
        outputs = [process.communicate(timeout=60)[0] for process in processes]
        return [process.returncode for process in processes], outputs

    def expect_all_reduce(self, program):
        codes, texts = self.run_ranks(program)
        self.assertEqual(codes, [0, 0], texts)
        for rank, text in enumerate(texts):
            self.assertIn(f"rank {rank} of 2: every element is 3", text)

    def test_exports_the_api_and_nothing_else(self):
        header = (self.root / "include/tensorwire/tensorwire.h").read_text()
        declared = set(re.findall(r"\b(tw[A-Z]\w*)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)))
        exported = {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", self.library).splitlines()
                    if " A " not in line}
        self.assertEqual(exported, declared)
        self.assertIn("twAllReduce", exported)

    def test_has_a_soname_and_needs_glibc_only(self):
        dynamic = output("readelf", "-dW", self.library)
        self.assertIn("Library soname: [libtensorwire.so.0]", dynamic)
        self.assertEqual(set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)) - GLIBC, set())

    def test_headers_compile_under_strict_warnings(self):
        include = f"-I{self.root / 'include'}"
        for compiler, language, standard, header in (("cc", "c", "-std=c11", "tensorwire.h"),
                                                     ("c++", "c++", "-std=c++20", "tensorwire.h"),
                                                     ("c++", "c++", "-std=c++20", "tensorwire.hpp")):
            subprocess.run([compiler, "-x", language, standard, *STRICT, include, "-fsyntax-only", "-"], check=True,
                           text=True, input=f"#include <tensorwire/{header}>\n#include <tensorwire/{header}>\n")

    def test_examples_build_with_find_package_and_run_as_two_ranks(self):
        build = pathlib.Path(self.folder.name, "examples")
        output("cmake", "-S", self.root / "share/doc/tensorwire/examples", "-B", build,
               f"-DCMAKE_PREFIX_PATH={self.root}", f"-DCMAKE_C_FLAGS={' '.join(STRICT)}",
               f"-DCMAKE_CXX_FLAGS={' '.join(STRICT)}")
        output("cmake", "--build", build)
        for program in ("all_reduce_c", "all_reduce_cpp"):
            with self.subTest(program):
                self.expect_all_reduce(build / program)

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_pkg_config_leads_to_a_program_that_runs(self):
        import shlex
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.root / "lib/pkgconfig")}
        flags = shlex.split(output("pkg-config", "--cflags", "--libs", "tensorwire", env=environment))
        program = pathlib.Path(self.folder.name, "by_pkg_config")
        output("cc", PROJECT / "examples/all_reduce.c", "-o", program, *flags, f"-Wl,-rpath,{self.root / 'lib'}")
        self.expect_all_reduce(program)

    def test_says_what_is_missing_without_a_launcher(self):
        build = pathlib.Path(self.folder.name, "alone")
        output("cc", PROJECT / "examples/all_reduce.c", "-o", build, f"-I{self.root / 'include'}", f"-L{self.root / 'lib'}",
               "-ltensorwire", f"-Wl,-rpath,{self.root / 'lib'}")
        done = subprocess.run([str(build)], env=SCRUBBED, text=True, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"twCommInitFromEnv: .*RANK.*torchrun, mpirun or srun")
        self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
