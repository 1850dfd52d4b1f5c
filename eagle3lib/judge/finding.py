"""Finding: one thing that somebody should know, with its numbers, its cost and what to do. Every judge speaks it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

LEVELS = ("fault", "warning", "open", "note", "ok")  # worst first; open: no file or capture given can settle it


@dataclass(frozen=True)
class Finding:
    level: str  # one of LEVELS
    where: str  # checkpoint, config, captures, ...
    what: str  # one sentence
    evidence: Mapping[str, object] = field(default_factory=dict)  # name -> number, or text with a number
    cost: str = ""  # in accept length, or rounds
    change: str = ""  # the line to change
    settle: str = ""  # what would settle it
    name: str = ""  # what it is about in a word or two, for whoever weighs findings; the sentence may change

    def __post_init__(self):
        assert self.level in LEVELS, self.level


class Findings(Sequence[Finding]):
    """Findings, worst first; a DataFrame when shown."""

    def __init__(self, findings: Sequence[Finding]):
        self.findings = sorted(findings, key=lambda f: LEVELS.index(f.level))

    def __getitem__(self, index):
        return self.findings[index]

    def __len__(self) -> int:
        return len(self.findings)

    def table(self) -> pd.DataFrame:
        """A row for each finding."""
        return pd.DataFrame(
            [
                {"level": f.level, "where": f.where, "what": f.what,
                 "evidence": "; ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in f.evidence.items()),
                 "cost": f.cost, "what to change": f.change, "what would settle it": f.settle}
                for f in self.findings
            ]
        )  # fmt: skip

    def _told(self) -> pd.DataFrame:
        """The table without columns that say nothing."""
        table = self.table()
        return table.loc[:, (table != "").any()]

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):  # the verdict is in the words
            return self._told()._repr_html_()

    def __repr__(self) -> str:
        return repr(self._told())
