"""Names the platform of the wheel: any Python 3, this processor, and the oldest glibc that its libraries run with. They need
nothing else of the system (tests/package), which is what `manylinux` promises.
"""
import pathlib
import platform
import re

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface):
    def initialize(self, version, build_data):
        libraries = [path for path in pathlib.Path(self.root, "tensorwire/lib").rglob("*") if path.is_file()]
        needed = {tuple(map(int, numbers)) for path in libraries
                  for numbers in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[\0.])", path.read_bytes())}
        if not needed:
            raise RuntimeError(f"no libraries in {self.root}/tensorwire/lib: the wheel is made by ./dev wheel")
        major, minor = max(needed)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"
