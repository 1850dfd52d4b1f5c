"""The accept length that the draft vocabulary allows: what no drafter can exceed on a text, however good it is."""

from collections.abc import Iterable

from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..run.chain import Hits, told_by_text
from .acceptance import Acceptance


def vocabulary_ceiling(ckpt: Checkpoint, captures: Iterable[Capture], steps: int) -> Acceptance:
    """Acceptance, K = 1..`steps`, of a drafter that is right wherever its draft vocabulary has the token.

    Tokens and masks are read, no states. Raises InputError when no sample has a row to draft from.
    """
    return Acceptance.of(_perfect(capture, ckpt, steps) for capture in captures)


def _perfect(capture: Capture, ckpt: Checkpoint, steps: int) -> Hits:
    truth, scored, written, known = told_by_text(capture, ckpt.target_ids, steps)
    return Hits(capture.name, truth, known, scored, written, known, complete=True)
