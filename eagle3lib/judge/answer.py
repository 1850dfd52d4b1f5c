"""One rule's answer, and the places it can name."""

from collections.abc import Callable
from dataclasses import dataclass

from ..run.chain import Hits
from .evidence import Evidence

PLACES = (
    "checkpoint", "training capture", "serving capture", "engine", "flags", "metric definition", "economics",
    "training or text", "nothing", "cannot tell",
)  # fmt: skip
TEXT = 0.1  # a server's text may well cost so much of the accepted drafts; below that nothing is asked
NOTHING = 1.005  # an accept length so near 1 is no weak model's: published weak ones reach 1.2


@dataclass(frozen=True)
class Answer:
    where: str
    what: str
    sentence: str
    do: str = ""
    sure: str = ""
    settle: str = ""
    mended: list[Hits] | None = None  # what would be accepted then

    @property
    def accuses(self) -> bool:
        return self.where not in ("nothing", "cannot tell", "training or text")


Rule = Callable[[Evidence], Answer | None]
