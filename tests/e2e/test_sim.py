"""`tensorwire sim`, as a network engineer calls it."""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import PROGRAM, EndToEnd, environment, run

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
SCENARIOS = pathlib.Path(__file__).resolve().parents[2] / "scenarios"
PEERS = pathlib.Path(__file__).resolve().parents[1] / "peers"
CAPTURED = """
limit = "1ms"
switch.ecn = {enabled = true, min = "20KiB", max = "40KiB"}
host.dcqcn.manner = "nic"
allreduce = [{hosts = "0-3", simulated = 4, compute_ms = 1}]
bulk = [{from = "4-7", to = 1, message = "64KiB"}]
"""
KEYS = {"scenario", "seed", "allreduce_us", "comm_ms_per_token", "ms_per_token", "pause_fraction_max", "ecn_marked",
        "retransmitted", "data_packet_hops", "wall_s"}


def sim(text, *arguments, timeout=120):
    """Plays the scenario `text`; the result with its JSON report."""
    with tempfile.TemporaryDirectory() as folder:
        scenario, report = pathlib.Path(folder, "scenario.toml"), pathlib.Path(folder, "report.json")
        scenario.write_text(text)
        result = run("sim", scenario, "--json", report, *arguments, timeout=timeout)
        if report.exists():
            result.report = json.loads(report.read_text())
        return result


def scenario(name, **changes):
    """A file of scenarios/, with values of keys (each stands at most once) changed; new ones are of the file itself."""
    text = (SCENARIOS / f"{name}.toml").read_text()
    for key, value in changes.items():
        text, count = re.subn(rf"(?m)^{key} = [^#\n]*", f"{key} = {value} ", text)
        if count == 0:
            text, count = f"{key} = {value}\n{text}", 1
        assert count == 1, key
    return text


class Sim(EndToEnd):
    def test_tells_what_it_found(self):
        result = sim(scenario("pfc_storm_cured", simulated=5))
        self.assertEqual(result.code, 0, result)
        self.assertLessEqual(KEYS, set(result.report))
        self.assertLess(result.report["ms_per_token"], 16)
        self.assertIn(result.report["finding"], result.out)
        self.assertEqual(result.err, "", "no progress bar where there is no terminal")

    def test_a_seed_is_a_run(self):
        runs = [sim(scenario("slow_receiver", simulated=2), "--seed", seed) for seed in (5, 5, 6)]
        hashes = [result.report["hash"] for result in runs]
        self.assertEqual(hashes[0], hashes[1])
        self.assertNotEqual(hashes[0], hashes[2])

    def test_says_what_is_wrong_with_a_scenario(self):
        result = sim("[topology]\nhots = 8\n")
        self.assertEqual(result.code, 1)
        self.assertRegex(result.err, r"^tensorwire: read \S+scenario.toml: line 2: topology.hots: there is no such key. "
                                     r"Allowed: .*hosts.*\n$")
        self.assertRegex(run("sim", "nowhere.toml").err, r"^tensorwire: read nowhere.toml: No such file")

    def test_a_sweep_compares(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "report.json")
            result = run("sim", SCENARIOS / "slow_receiver.toml", "--sweep", "switch.ecn.enabled=false,true", "--json", report)
            self.assertEqual(result.code, 0, result)
            ill, cured = json.loads(report.read_text())["runs"]
            self.assertGreater(ill["ms_per_token"], 2 * cured["ms_per_token"])
            self.assertEqual(len(result.out.splitlines()), 3)
        self.assertRegex(run("sim", SCENARIOS / "slow_receiver.toml", "--sweep", "switch.ecn.mim=1,2").err,
                         r"switch.ecn.mim: there is no such key. Allowed: enabled, min, max")

    def test_a_port_is_captured(self):
        tshark = shutil.which("tshark")
        if tshark is None:
            self.skipTest("tshark is not installed")
        with tempfile.TemporaryDirectory() as folder:
            # Marked, told of and acknowledged, with and without immediate data; nothing is paused.
            quiet = pathlib.Path(folder, "quiet.pcap")
            result = sim(CAPTURED, "--pcap", f"host 1={quiet}")
            self.assertEqual(result.code, 0, result)
            self.assertRegex(result.out, r"\d+ packets that passed host 1 are in .*quiet.pcap")
            checked = subprocess.run([sys.executable, PEERS / "check_capture.py", quiet], text=True, capture_output=True)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
            for opcode in ("0x06", "0x09", "0x11", "0x81"):
                self.assertIn(opcode + " x", checked.stdout)
            # The PFC frames of a slow receiver.
            paused = pathlib.Path(folder, "paused.pcap")
            text = scenario("slow_receiver", limit='"300us"', simulated=1)
            self.assertEqual(sim(text, "--pcap", f"leaf 0 port 7={paused}").code, 0)
            fields = [tshark, "-n", "-r", paused, "-Y", "macc", "-T", "fields", "-e", "macc.opcode", "-e", "macc.cbfc.pause_time.c3",
                      "-e", "_ws.malformed"]
            frames = subprocess.run(fields, text=True, capture_output=True, check=True).stdout.split("\n")[:-1]
            self.assertLessEqual({"0x0101\t65535\t", "0x0101\t0\t"}, set(frames))
        self.assertRegex(run("sim", SCENARIOS / "slow_receiver.toml", "--pcap", "leaf 9 port 1").err,
                         r'find port "leaf 9 port 1": .* Allowed: "host 0" to "host 31", "leaf 0 port 0" to')

    def test_an_interrupted_run_still_reports(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "report.json")
            endless = pathlib.Path(folder, "endless.toml")
            endless.write_text('limit = "100s"\n[[bulk]]\nfrom = "0-3"\nto = "4-7"\n')
            process = subprocess.Popen([PROGRAM, "sim", endless, "--json", report], env=environment(), text=True,
                                       stdout=subprocess.PIPE)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 130)
            self.assertIn("INTERRUPTED", out)
            self.assertTrue(json.loads(report.read_text())["interrupted"])


class SimPage(EndToEnd):
    """The page of a report, in a browser where there is one."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.page = pathlib.Path(self.folder.name, "page.html")

    def draw(self):
        """The document as its script has left it; a screenshot; nothing on the console."""
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is None:
            self.skipTest("no headless Chromium: apt-get install --no-install-recommends chromium-headless-shell")
        picture = self.page.with_suffix(".png")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1250,2300",
                   f"--user-data-dir={self.folder.name}/profile", self.page.as_uri()]
        drawn, shown = (subprocess.run([*command[:-1], flag, command[-1]], text=True, capture_output=True, timeout=120)
                        for flag in ("--dump-dom", f"--screenshot={picture}"))
        for run_of_browser in (drawn, shown):
            self.assertEqual(run_of_browser.returncode, 0, run_of_browser.stderr)
            self.assertNotIn("CONSOLE", run_of_browser.stderr)
        self.assertGreater(picture.stat().st_size, 40_000, "an empty page is smaller")
        return drawn.stdout

    def write_page(self, *arguments):
        result = run("sim", *arguments, "--html", self.page, timeout=120)
        self.assertEqual(result.code, 0, result)
        addresses = set(re.findall(r"https?://[^'\"<>\s]*", self.page.read_text()))
        self.assertLessEqual(addresses, {"http://www.w3.org/2000/svg"}, "the page needs no network")

    def test_a_run(self):
        name = pathlib.Path(self.folder.name, "storm.toml")
        name.write_text(scenario("pfc_storm_cured", simulated=5, about='"a </script> & more"'))
        self.write_page(name)
        page = self.draw()
        self.assertEqual(page.count('class="link"'), 2 * (64 + 8 * 4), "each direction of each link")
        self.assertEqual(page.count('class="chart"'), 4 + 1, "over time, and latencies")
        self.assertIn("a &lt;/script&gt; &amp; more", page)

    def test_a_sweep(self):
        self.write_page(SCENARIOS / "slow_receiver.toml", "--sweep", "switch.ecn.enabled=false,true")
        page = self.draw()
        self.assertEqual(page.count("<rect"), 2)
        self.assertEqual(page.count("<polyline"), 2)


class SimPlan(EndToEnd):
    def test_the_best_plan_and_what_it_hangs_on(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "plan.json")
            result = run("sim", "plan", "--gpus", "16", "--topology", "leaf-spine", "--json", report)
            self.assertEqual(result.code, 0, result)
            plan = json.loads(report.read_text())
        self.assertEqual(plan["best"], "two-shot")
        self.assertEqual(plan["bytes"], 256 * 1024)
        tokens = {each["name"]: each["ms_per_token"] for each in plan["plans"]}
        self.assertEqual(tokens["two-shot"], min(tokens.values()))
        self.assertLessEqual({"fabric only", "oversubscription 2:1", "buffer 16 MiB", "MTU 1024"},
                             {each["name"] for each in plan["variations"]})
        self.assertIn("best: two-shot", result.out)

    def test_says_what_is_allowed(self):
        for flags, answer in ((("--model", "gpt"), "llama-3.1-70b"), (("--nic", "56G"), "400G"), (("--gpus", "12"), "multiple"),
                              (("--topology", "torus"), "fat-tree"), (("--placement", "any"), "spread, packed")):
            self.assertRegex(run("sim", "plan", *flags).err, f"^tensorwire: .*{answer}")


class StormSeeds(EndToEnd):
    """The storm and its cure do not hang on a seed, nor on the very thresholds."""
    SEEDS = range(1, 11)

    def ms_per_token(self, text, seed):
        result = sim(text, "--seed", seed)
        self.assertEqual(result.code, 0, result)
        return result.report["ms_per_token"]

    def test_ten_seeds(self):
        for seed in self.SEEDS:
            with self.subTest(seed=seed):
                self.assertGreater(self.ms_per_token(scenario("pfc_storm"), seed), 100)
                self.assertGreater(self.ms_per_token(scenario("pfc_storm_miscured"), seed), 100)
                self.assertLess(self.ms_per_token(scenario("pfc_storm_cured"), seed), 16)

    def test_half_and_twice_the_thresholds(self):
        for least, most in (("64KiB", "128KiB"), ("256KiB", "512KiB")):
            text = scenario("pfc_storm_cured", min=f'"{least}"', max=f'"{most}"')
            for seed in self.SEEDS:
                with self.subTest(seed=seed, least=least):
                    self.assertLess(self.ms_per_token(text, seed), 16)
