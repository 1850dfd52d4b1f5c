"""The battery in small, on the committed captures: a few cases do what they say, and their verdicts are right."""

import pytest
from battery.base import Texts
from battery.cases import Case, all_cases
from battery.report import report
from battery.run import row_of
from battery.sight import as_said, measured

DEMO = Texts(demo=True, samples=24)
SOME = (
    "healthy, served: rows one late",
    "healthy, checkpoint: map counts up, alone",
    "healthy, engine, requests: map ignored",
    "embedding_fed, served: first and second slot swapped",
)


@pytest.fixture(scope="module")
def cases(target_folder) -> dict[str, Case]:
    return {case.name: case for case in all_cases(DEMO)}


@pytest.mark.parametrize("name", SOME)
def test_check_sight(cases, name):
    assert as_said(cases[name], measured(cases[name]))


def test_each_case_says_what_is_right_and_which_drafter_is_tuned_on(cases):
    assert all(case.where and case.what for case in cases.values())
    assert all(case.drafter == "embedding_fed" for case in cases.values() if case.tune)
    assert {case.sight for case in cases.values()} == {"visible", "equal", "needs"}
    assert all(bool(case.needs) == (case.sight == "needs") for case in cases.values())


def test_a_file_that_does_not_open_is_called_broken(cases):
    row = row_of(cases["healthy, checkpoint: no map"])
    assert row["place"], row


QUICK = (
    "embedding_fed, sound: only a checkpoint",
    "embedding_fed, sound: only a log",
    "published figures with their launch line",
)


@pytest.mark.parametrize("name", QUICK)
def test_verdicts(cases, name):
    row = row_of(cases[name])
    assert row["named"], f"{row['where']}: {row['what']}: {row['sentence']}"
    assert name in report([row], {"eagle3lib": "test"})
