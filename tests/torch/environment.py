"""Runs unittest where PyTorch and Transformers are: in this Python if it has PyTorch, else in a folder of packages from PyPI.

The folder is made once (build/pytorch, half a minute) and anew when requirements.txt changes. Where that fails, for there is no
network, the exit status is 77 and one line says so.

usage: environment.py ARGUMENTS-OF-UNITTEST...
"""
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
FOLDER = PROJECT / "build/pytorch"
SKIPPED = 77


def state():
    """Changes with what the folder is made of."""
    digest = hashlib.sha256(sys.version.encode())
    for name in ("requirements.txt", "absent_cuda.py"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def make():
    shutil.rmtree(FOLDER, ignore_errors=True)
    scratch = FOLDER / "scratch"  # beside the packages, so that pip moves and does not copy
    scratch.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-compile",
                    "--no-warn-script-location", "--root-user-action", "ignore", "--retries", "1", "--timeout", "20",
                    "--target", FOLDER / "packages", "--requirement", HERE / "requirements.txt"],
                   check=True, env={**os.environ, "TMPDIR": str(scratch)})
    subprocess.run([sys.executable, HERE / "absent_cuda.py", FOLDER / "packages/torch/lib"], check=True)
    shutil.rmtree(scratch)
    (FOLDER / "state").write_text(state())


def packages():
    """The folder of PyTorch, made if need be; None where this Python has it."""
    if importlib.util.find_spec("torch"):
        return None
    FOLDER.parent.mkdir(exist_ok=True)
    with open(FOLDER.parent / "pytorch.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = FOLDER / "state"
        if not made.exists() or made.read_text() != state():
            make()
    return FOLDER / "packages"


def main(arguments):
    try:
        found = packages()
    except subprocess.CalledProcessError:
        print("skipped: PyTorch is not here, and PyPI did not give it (above)")
        return SKIPPED
    library = os.environ.get("TENSORWIRE_LIBRARY") or pathlib.Path(os.environ.get("TW_BUILD_DIR", PROJECT / "build/release"),
                                                                   "lib/libtensorwire.so.0")
    path = [PROJECT / "python", *([found] if found else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # to compile PyTorch's sources each time takes longer than the tests
    os.environ["PYTHONPYCACHEPREFIX"] = str(PROJECT / "build/bytecode")
    os.environ.update(PYTHONPATH=os.pathsep.join(map(str, path)), TENSORWIRE_LIBRARY=str(library), OMP_NUM_THREADS="1")
    os.execv(sys.executable, [sys.executable, "-m", "unittest", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
