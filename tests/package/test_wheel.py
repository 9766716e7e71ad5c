"""Makes the wheel, installs it in an empty folder and uses it there. Making it takes Hatchling from PyPI: without a network that
is skipped (exit status 77)."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

from test_package import BUILD, PROJECT, SCRUBBED, output

ALL_REDUCE = """
import array, sys, threading
sys.path.insert(0, sys.argv[1])
import tensorwire
identifier, sums = tensorwire.unique_id(), [None, None]

def rank(number):
    comm = tensorwire.Communicator.join(identifier, 2, number)
    values = array.array("f", [number + 1] * 5)
    comm.all_reduce(values.buffer_info()[0], values.buffer_info()[0], 5, tensorwire.DataType.FLOAT32)
    sums[number] = values.tolist()
    comm.destroy()

threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(tensorwire.version(), sums)
"""

# As NCCL looks symbols up: by name and version. How many functions were found, and how many drop-ins are loaded.
OPEN_BOTH = """
import ctypes, sys
dlvsym = ctypes.CDLL(None).dlvsym
dlvsym.restype, dlvsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
opened = [ctypes.CDLL(name) for name in sys.argv[1:]]
found = {dlvsym(library._handle, b"ibv_get_device_list", b"IBVERBS_1.1") for library in opened}
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/libibverbs.so.1" in line}
print(len(found - {None}) if None not in found else "not found", len(mapped))
"""


def make_wheel(into):
    return pathlib.Path(output(PROJECT / "scripts/wheel.sh", BUILD, into, cwd=PROJECT).strip())


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        try:
            cls.wheel = make_wheel(cls.folder.name)
        except AssertionError as error:
            if "hatchling" in str(error):
                print("skipped: Hatchling could not be had from PyPI")
                os._exit(77)
            raise
        cls.site = pathlib.Path(cls.folder.name, "a place with blanks")
        with zipfile.ZipFile(cls.wheel) as files:
            files.extractall(cls.site)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_is_for_any_python_3_on_this_platform(self):
        self.assertRegex(self.wheel.name, rf"^tensorwire-\d+\.\d+\.\d+-py3-none-manylinux_2_\d+_{os.uname().machine}\.whl$")

    def test_holds_the_package_and_its_libraries_and_nothing_of_the_build(self):
        held = {str(path.relative_to(self.site)) for path in self.site.rglob("*") if path.is_file()}
        self.assertLessEqual({"tensorwire/operators.py", "tensorwire/lib/libtensorwire.so.0",
                              "tensorwire/lib/tensorwire/libibverbs.so.1", "tensorwire/lib/tensorwire/libibverbs.so",
                              "tensorwire/lib/tensorwire/nccl/libnccl.so.2"}, held)
        self.assertFalse([path for path in held if "__pycache__" in path or path.startswith("platform_tag")])
        entry_points, = self.site.glob("*.dist-info/entry_points.txt")
        self.assertIn("[torch.backends]\ntensorwire = tensorwire.backend:register", entry_points.read_text())

    def test_the_drop_in_is_one_library_under_both_names(self):
        for names in (("libibverbs.so", "libibverbs.so.1"), ("libibverbs.so.1", "libibverbs.so")):
            done = subprocess.run([sys.executable, "-B", "-c", OPEN_BOTH, *names], text=True, capture_output=True, timeout=60,
                                  env={**SCRUBBED, "LD_LIBRARY_PATH": str(self.site / "tensorwire/lib/tensorwire")}, cwd="/")
            self.assertEqual((0, "1 1\n"), (done.returncode, done.stdout), done.stderr)

    def test_two_ranks_sum_with_its_own_libraries(self):
        done = subprocess.run([sys.executable, "-B", "-c", ALL_REDUCE, self.site], text=True, capture_output=True, timeout=60,
                              env={**SCRUBBED, "TENSORWIRE_DEVICE": "soft"}, cwd="/")
        self.assertEqual((0, "(0, 1, 0) [[3.0, 3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0, 3.0]]\n"),
                         (done.returncode, done.stdout), done.stderr)


if __name__ == "__main__":
    unittest.main()
