"""Mistakes of the transport engine that the fabric's own tests must notice, for the fabric runs this very engine. The mutants
are those of tests/transport/mutants; here stands which named tests of the fabric find them."""

from table import MUTANTS as OF_THE_ENGINE

SIMULATION = UNIT_TESTS = "tests/fabric/test_fabric"
SOURCES = "src/transport"
SEEDS = 0

FOUND_BY = {
    "every_gap_answered": "Published/GoBackN.*",
    "silence_after_nak": "Published/GoBackN.*",
    "gap_taken_for_duplicate": "Published/GoBackN.*",
    "timer_never_started": "Published/GoBackN.*",
    "immediate_dropped": "AllReduce.*",
    "immediate_of_nobody": "AllReduce.*",
    "completion_before_last": "AllReduce.*",
    "cnp_for_every_mark": "Published/FixedPoint.*:Victim.*",
    "marks_never_told": "Published/FixedPoint.*:Victim.*",
    "cnp_in_class_of_data": "SameRun.*",
}

MUTANTS = [mutant._replace(unit_tests=FOUND_BY[mutant.name]) for mutant in OF_THE_ENGINE if mutant.name in FOUND_BY]
assert len(MUTANTS) == len(FOUND_BY)
