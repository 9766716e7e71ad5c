"""python/tensorwire/torch_nccl_roce.py: the environment that it sets. tests/torch runs it under torchrun."""
import os
import pathlib
import subprocess
import sys
import unittest

from harness import PROGRAM

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "python/tensorwire/torch_nccl_roce.py"


def run_python(code, **variables):
    """Runs `code` where the module is `t`, with no other variables than `variables`."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SCRIPT.parent), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run([sys.executable, "-c", f"import os, torch_nccl_roce as t\n{code}"], env=env, text=True,
                          capture_output=True, timeout=60)
    return done.returncode, done.stdout.strip(), done.stderr


class Environment(unittest.TestCase):
    CALL = "added = t.init_nccl_rocev2_environment(1, 4, '192.0.2.1', 29500); "

    def test_without_the_program_only_what_holds_everywhere(self):
        code, out, err = run_python(self.CALL + "print(os.environ['NCCL_IB_TC'], os.environ['MASTER_PORT'], os.environ['RANK'], "
                                                "'NCCL_IB_GID_INDEX' in os.environ)", PATH="/nowhere")
        self.assertEqual((0, "104 29500 1 False"), (code, out), err)

    def test_with_the_program_what_it_found_here(self):
        program = str(pathlib.Path(PROGRAM).resolve())
        code, out, err = run_python("import json, subprocess\nwanted = json.loads(subprocess.run([os.environ['TENSORWIRE_PROGRAM'], "
                                    "'nccl-env', '--json'], capture_output=True, check=True).stdout)['environment']\n"
                                    + self.CALL + "print(all(added[name] == line['value'] for name, line in wanted.items()), "
                                                  "added['LOCAL_RANK'])", TENSORWIRE_PROGRAM=program)
        self.assertEqual((0, "True 1"), (code, out), err)

    def test_what_is_set_already_is_kept(self):
        code, out, err = run_python(self.CALL + "print(os.environ['NCCL_IB_TC'], os.environ['RANK'], 'NCCL_IB_TC' in added)",
                                    PATH="/nowhere", NCCL_IB_TC="96", RANK="3")
        self.assertEqual((0, "96 3 False"), (code, out), err)

    def test_a_program_that_fails_is_said(self):
        code, _, err = run_python(self.CALL, TENSORWIRE_PROGRAM="/bin/false")
        self.assertEqual(1, code)
        self.assertIn("/bin/false nccl-env failed", err)


if __name__ == "__main__":
    unittest.main()
