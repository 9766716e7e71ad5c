"""Plants one violation at a time in a small tree and sees that the lint scripts name it, and nothing else."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
CLEAN = {
    "src/base/error.hpp": "// Errors.\n#pragma once\n",
    "src/base/clock.hpp": "// The clock.\n#pragma once\n",
    "src/base/log.cpp": '#include "base/error.hpp"\n#include <spdlog/logger.h>\n#include <fmt/format.h>\n',
    "src/base/CMakeLists.txt": "tw_room(base)\n",
    "src/wire/gid.hpp": '// GIDs.\n#pragma once\n#include <array>\n#include "base/error.hpp"\n',
    "src/wire/CMakeLists.txt": "tw_room(wire USES base LIBRARIES isal)\n",
    "src/softhca/hca.cpp": '#include "base/clock.hpp"\n#include "wire/gid.hpp"\n',
    "src/ibverbs/direct.h": "/* A contract in C. */\n#include <stdint.h>\n",
    "src/verbs/library.cpp": '#include "ibverbs/direct.h"\n',
}


class PlantedViolations(unittest.TestCase):
    def lint(self, script, **planted):
        """Runs `script` on the clean tree with `planted` {path: text} laid over it; gives (exit status, findings)."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**CLEAN, **planted.get("files", {})}.items():
                target = pathlib.Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            done = subprocess.run([sys.executable, PROJECT / "scripts/lint" / script, folder], text=True,
                                  capture_output=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def expect(self, script, path, text, finding):
        status, findings = self.lint(script, files={path: text})
        self.assertEqual(status, 1)
        self.assertEqual(len(findings), 1, findings)
        self.assertIn(path, findings[0])
        self.assertIn(finding, findings[0])

    def test_the_clean_tree_passes(self):
        for script in ("rooms.py", "text.py"):
            self.assertEqual(self.lint(script), (0, []))

    def test_a_room_includes_no_room_above_it(self):
        self.expect("rooms.py", "src/base/units.cpp", '#include "wire/gid.hpp"\n', "base may not use wire")

    def test_a_room_includes_no_room_beside_it(self):
        self.expect("rooms.py", "src/collective/plan.cpp", '#include "wire/gid.hpp"\n', "collective may not use wire")

    def test_sub_folders_belong_to_their_room(self):
        self.expect("rooms.py", "src/base/text/units.cpp", '#  include "wire/gid.hpp"\n', "base may not use wire")

    def test_an_open_header_is_open_to_the_named_room_only(self):
        self.expect("rooms.py", "src/wire/packet.cpp", '#include "ibverbs/direct.h"\n', "wire may not use ibverbs")

    def test_a_room_links_no_room_above_it(self):
        self.expect("rooms.py", "src/base/CMakeLists.txt", "tw_room(base USES wire)\n", "base may not link wire")
        self.expect("rooms.py", "src/verbs/CMakeLists.txt", "target_link_libraries(x tw_softhca)\n",
                    "verbs may not link softhca")

    def test_includes_name_the_room(self):
        for line in ('"error.hpp"', '"../base/error.hpp"', '"wire/../base/error.hpp"'):
            self.expect("rooms.py", "src/wire/packet.cpp", f"#include {line}\n", 'write it as "room/file.hpp"')

    def test_a_source_begins_with_its_own_header(self):
        self.expect("rooms.py", "src/wire/gid.cpp", '#include <array>\n#include "wire/gid.hpp"\n', "begin with")
        begins = {"src/wire/gid.cpp": '#include "wire/gid.hpp"\n\n#include <array>\n'}
        self.assertEqual(self.lint("rooms.py", files=begins), (0, []))

    def test_included_files_exist(self):
        self.expect("rooms.py", "src/wire/packet.cpp", '#include "base/absent.hpp"\n', "there is no such file")

    def test_folders_are_rooms(self):
        self.expect("rooms.py", "src/attic/old.cpp", "\n", "attic is not a room")

    def test_deterministic_rooms_read_no_clock(self):
        self.expect("rooms.py", "src/wire/packet.cpp", '#include "base/clock.hpp"\n', "never reads a clock")

    def test_libraries_stay_in_their_place(self):
        self.expect("rooms.py", "src/wire/packet.cpp", "#include <spdlog/spdlog.h>\n", "base/log.cpp alone")
        self.expect("rooms.py", "src/wire/name.hpp", "// A.\n#pragma once\n#include <fmt/format.h>\n", "not for headers")

    def test_left_over_marks(self):
        for mark in ("TO" + "DO", "FIX" + "ME"):
            self.expect("text.py", "src/wire/packet.cpp", f"// {mark}: later\n", "left over")

    def test_headers_open_with_what_they_are(self):
        self.expect("text.py", "src/wire/x.hpp", "#pragma once\n", "opens by saying")
        self.expect("text.py", "src/wire/x.hpp", "// What it is.\n", "no #pragma once")

    def test_long_files_are_listed_with_a_reason(self):
        path, text = "src/wire/long.cpp", "int x;\n" * 501
        self.expect("text.py", path, text, "501 lines")
        listed = {path: text, "scripts/lint/long_files.txt": f"{path} one table\n"}
        self.assertEqual(self.lint("text.py", files=listed), (0, []))
        self.expect("text.py", "scripts/lint/long_files.txt", f"{path} gone since\n", "does not exist")

    def test_blanks_at_the_end(self):
        self.expect("text.py", "src/wire/packet.cpp", "int x; \n", "blanks at the end")

    def test_build_output_is_not_looked_at(self):
        self.assertEqual(self.lint("text.py", files={"build/x/bad.hpp": "no header\n"}), (0, []))


class TheProject(unittest.TestCase):
    def test_its_table_of_rooms_has_no_circle(self):
        sys.path.insert(0, str(PROJECT / "scripts/lint"))
        import rooms
        self.assertEqual(rooms.table_errors(), [])
        rooms.ROOMS["base"].append("cli")
        self.assertEqual(len(rooms.table_errors()), 1)
        rooms.ROOMS["base"].remove("cli")


if __name__ == "__main__":
    unittest.main()
