"""What speaks against a checkpoint by its files alone, before anything is run; and what no file can settle.

A list of checks, each a function from a checkpoint to Findings. What the reader refuses (shapes that contradict each other, norms
without their flags, maps that lead nowhere) does not come so far.
"""

from collections.abc import Callable, Iterator

import pandas as pd

from ..measure.inventory import inventory
from ..read.checkpoint import Checkpoint
from ..read.config import OUTPUTS, layer_ids
from ..read.layouts import OPEN
from .audit_config import of_engines, of_layer_ids, of_positions, of_the_config
from .audit_tensors import of_tensors, of_the_folder, of_the_head, of_the_map, of_what_engines_skip
from .finding import Finding, Findings
from .probe import Probe
from .ranking import ALPHA

# Each open question of `layouts.OPEN` to the probe's hypothesis that is its other answer: its name begins so.
CLOSED_BY = {
    "double norm": "the state normed twice", "rope base": "rope base 10,000", "injected yarn": "rope base",
    "norm_output": "norm_output", "norm_before_residual": "norm_before_residual", "id dialect": "streams",
}  # fmt: skip
Check = Callable[[Checkpoint], Iterator[Finding]]


def audit(ckpt: Checkpoint, probed: Probe | None = None, tensors: pd.DataFrame | None = None) -> Findings:
    """Everything that the files say against themselves, each engine's reading of the layer ids, and what stays open.

    `probed`: a probe on captures, which closes open questions. `tensors`: what `inventory` gives, where it is there already
    (it reads rows of every tensor). Without the target less can be compared.
    """
    tensors = inventory(ckpt) if tensors is None else tensors
    return Findings([*audit_config(ckpt, probed), *of_tensors(ckpt, tensors)])


def audit_config(ckpt: Checkpoint, probed: Probe | None = None) -> Findings:
    """The same without `inventory`: of the tensors, only rows of the head and the map are read."""
    return Findings([*(finding for check in CHECKS for finding in check(ckpt)), *_open(ckpt, probed)])


CHECKS: tuple[Check, ...] = (
    of_layer_ids,
    of_engines,
    of_the_map,
    of_positions,
    of_the_config,
    of_what_engines_skip,
    of_the_folder,
    of_the_head,
)


def _open(ckpt: Checkpoint, probed: Probe | None) -> Iterator[Finding]:
    """What no file settles, with the default taken; told by the probe where it tried the other answer."""
    for question in _asked(ckpt):
        settle = f'the probe on captures: "{CLOSED_BY[question]}"'
        closed = _closed(question, probed) if probed is not None else None
        yield closed or Finding("open", "config", f"{question}: {OPEN[question]}", settle=settle, name=question)


def _asked(ckpt: Checkpoint) -> Iterator[str]:
    """The open questions that this very file leaves."""
    r, scaling = ckpt.recipe, ckpt.config.get("rope_scaling") or {}
    applies = {
        "double norm": True, "rope base": r.rope.inv_freq[1] != 10000.0 ** (-1 / len(r.rope.inv_freq)),
        "injected yarn": scaling.get("rope_type") == "yarn" and scaling.get("original_max_position_embeddings") == 2048,
        "norm_output": r.norm_output, "norm_before_residual": "absent" in r.sources.get("norm_before_residual", ""),
    }  # fmt: skip
    yield from (question for question in ckpt.layout.opens if applies[question])
    place, ids = layer_ids(ckpt.config) or ((), [])
    if ids and place[-1] != OUTPUTS and ids[0] not in (1, 2) and min(ids) >= 0:
        yield "id dialect"


def _closed(question: str, probed: Probe) -> Finding | None:
    """What the probe says of it: "ok" where the other answer does worse, by more than noise; None where it cannot tell."""
    if question == "id dialect":
        return Finding("ok", "config", f"{question}: {probed.findings[0].what}", name=question) if probed.told else None
    tried = probed.changes[probed.changes.index.str.startswith(CLOSED_BY[question])] if len(probed.changes) else probed.changes
    if not len(tried):
        return None
    other = tried.sort_values("gained").iloc[-1]
    worse = other.gained < 0 and (other.p < ALPHA or other.p != other.p)  # nan: dropped from the race for being told worse
    if not worse:
        return None
    what = f"{question}: as read here; {other.name} does worse by {-other.gained:.3f} on the captures"
    return Finding("ok", "config", what, {"gained": float(other.gained)}, name=question)
