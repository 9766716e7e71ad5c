"""What the program has, the documents name: every counter, every word of TENSORWIRE_FAULTS."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def words(pattern, *paths):
    found = {word for path in paths for word in re.findall(pattern, path.read_text())}
    assert found, f"{pattern} is nowhere in {paths}"
    return found


class Documentation(unittest.TestCase):
    def assert_named(self, wanted, document):
        text = (ROOT / document).read_text()
        self.assertEqual([], sorted(word for word in wanted if f"`{word}" not in text), f"not in {document}")

    def test_every_counter(self):
        self.assert_named(words(r'sink\("(\w+)"', *(ROOT / "src/softhca").glob("*.cpp")), "docs/soft-hca.md")

    def test_every_kind_of_fault(self):
        listed = words(r'kWords = "([^"]+)"', ROOT / "src/softhca/faults_text.cpp").pop()
        self.assert_named([f"{word}=" for word in listed.split(", ")], "docs/soft-hca.md")


if __name__ == "__main__":
    unittest.main()
