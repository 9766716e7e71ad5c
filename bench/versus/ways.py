"""The ways that are compared: how the ranks of each are started, and what its path must show in the counters."""
import dataclasses
import os
import pathlib
import shutil


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    program: str
    wire: str  # what carries the bytes: "memory", "tcp" or "udp"
    variables: dict = dataclasses.field(default_factory=dict)
    btl: str = ""  # OpenMPI's byte transfer layer

    def commands(self, programs, ranks, port):
        """[(command, environment)], a process each. mpirun starts all ranks itself."""
        program = pathlib.Path(programs, self.program)
        if self.btl:
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            return [([mpirun(programs), *root, "--oversubscribe", "-n", str(ranks), "--mca", "pml", "ob1", "--mca", "btl",
                      f"{self.btl},self", program], openmpi_environment(programs))]
        return [([program], {**self.variables, **bundled_gloo(programs), "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks,
                             "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                for rank in range(ranks)]

    def missing(self, programs):
        """Why it cannot be measured here, or None."""
        if not pathlib.Path(programs, self.program).exists():
            return f"{self.program} is not in {programs}: its library's headers were not there when that was built"
        if self.btl and mpirun(programs) is None:
            return "mpirun is not installed (Debian: openmpi-bin)"
        return None


BUILT_IN = {"TENSORWIRE_TUNE": "off"}  # no thresholds of this user's tune file
WAYS = {
    way.name: way
    for way in (
        Way("mapped memory", "versus_tensorwire", "memory", {"VERSUS_PATH": "mapped", **BUILT_IN}),
        Way("same-host link", "versus_tensorwire", "memory", {"VERSUS_PATH": "local", **BUILT_IN}),
        Way("RoCEv2 packets", "versus_tensorwire", "udp", {"VERSUS_PATH": "packets", **BUILT_IN}),
        Way("OpenMPI shared memory", "versus_openmpi", "memory", btl="vader"),
        Way("OpenMPI tcp", "versus_openmpi", "tcp", btl="tcp"),
        Way("gloo tcp", "versus_gloo", "tcp"),
    )
}
# What each is judged against.
RIVALS = {"mapped memory": ["OpenMPI shared memory"], "same-host link": ["OpenMPI shared memory"], "RoCEv2 packets": ["OpenMPI tcp", "gloo tcp"]}
GOAL = 0.6


def bundled_openmpi(programs):
    """The folder of an OpenMPI that travels beside the programs (bundle.sh), or None."""
    folder = pathlib.Path(programs).resolve().parent / "openmpi"
    return folder if (folder / "bin/mpirun").exists() else None


def bundled_gloo(programs):
    folder = pathlib.Path(programs).resolve().parent / "gloo/lib"
    return {"LD_LIBRARY_PATH": folder} if folder.exists() else {}


def mpirun(programs):
    folder = bundled_openmpi(programs)
    return folder / "bin/mpirun" if folder else shutil.which("mpirun")


def openmpi_environment(programs):
    folder = bundled_openmpi(programs)
    if folder is None:
        return {}
    return {"OPAL_PREFIX": folder, "PMIX_INSTALL_PREFIX": folder, "LD_LIBRARY_PATH": folder / "lib", "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
