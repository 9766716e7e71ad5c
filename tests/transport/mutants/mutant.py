"""A mutant is an edit of one source file: `old` stands there exactly once and becomes `new`. When the source is rewritten and
`old` is not found any more, the mutant is to be rewritten with it."""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    breaks: str
    file: str
    old: str
    new: str
    unit_tests: str = ""  # a filter of GoogleTest: these must find it, in place of the simulation
