"""All faults by name: what was done, and which answers are right. The functions, with their sources, are in the siblings.

`sight` is what the fault does to the accept length of this drafter, measured (sight.py holds the tables to it): "visible",
"equal" where it costs nothing, so that "nothing" is right too, or "small" where these prompts are too few to be sure. `open`:
it costs, but what is given cannot tell it from something else; `open` says what would.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from . import capture_faults as c
from . import checkpoint_faults as k
from . import engine_faults as e

BOTH = ("healthy", "embedding_fed")


def before(own: tuple[int, ...]) -> tuple[int, ...]:
    """The streams one layer before the drafter's own."""
    return tuple(max(n - 1, 0) for n in own)


def after(own: tuple[int, ...]) -> tuple[int, ...]:
    """The streams one layer after the drafter's own."""
    return tuple(n + 1 for n in own)


@dataclass(frozen=True)
class Fault:
    """One kind of fault. `what`: names that are right for it, of the verdict's NAMES."""

    name: str
    run: Callable
    what: frozenset[str]
    sight: Mapping[str, str] = field(default_factory=dict)  # drafter -> "equal" or "small"; "visible" where nothing is said
    drafters: tuple[str, ...] = BOTH
    open: str = ""
    where: frozenset[str] = frozenset()  # further right places
    served: bool = True  # a fault of captures: whether a server's can have it, and a trainer's
    trained: bool = True
    reads: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda own: own  # streams that it reads: named by the reference too

    def seen(self, drafter: str) -> str:
        return self.sight.get(drafter, "visible")


def fault(name, run, what, equal=(), small=(), **more) -> Fault:
    """`what` as words with commas between; `equal`, `small`: the drafters for which it is."""
    sight = {**dict.fromkeys(equal, "equal"), **dict.fromkeys(small, "small")}
    where = frozenset(more.pop("where", ()))
    return Fault(name, run, frozenset(what.split(", ")), sight, where=where, **more)


# An engine, a server or a dump hands over wrong states. Each is tried on what the server gave, and on a training capture.
CAPTURE = (
    fault("slots rotated", c.rotated, "streams"),
    fault("first and last slot swapped", c.swapped_ends, "streams"),
    fault("first and second slot swapped", c.swapped_front, "streams"),
    fault("ids one less", c.ids_early, "streams", reads=before),
    fault("ids one more", c.ids_late, "streams", reads=after),
    fault("last layer thrice", c.last_thrice, "streams, one tensor twice"),
    fault("one slot twice", c.slot_twice, "streams, one tensor twice"),
    fault("last slot from the last layer", c.final_layer, "streams", reads=lambda own: (30,)),
    fault("layers 1, 2, 3", c.first_three, "streams", reads=lambda own: (1, 2, 3)),
    fault("rows one late", c.late, "rows, tokens"),
    fault("rows two late", c.two_late, "rows, tokens"),
    fault("rows one early", c.early, "rows, tokens"),
    fault("states of another request", c.of_another, "rows of other tokens, rows"),
    fault("16 pads of zeros on the left", c.padded, "zero rows, rows, rows of other tokens", equal=BOTH),
    fault("all rows zeros", c.zeros, "zero rows"),
    fault("prompt rows zeros", c.zeros_prompt, "zero rows"),
    fault("a quarter of the rows zeros", c.zeros_part, "zero rows"),
    fault("states x 2", c.scaled(2.0), "scale"),
    fault("states x 0.5", c.scaled(0.5), "scale"),
    fault("states x 8", c.scaled(8.0), "scale"),
    fault("states normed", c.normed, "normed states, norm, scale"),
    fault("residual missing", c.no_residual, "residual", reads=before),
    fault("half of a layer's sum missing", c.partial_sum, "residual, scale, streams",
          small=("healthy",), equal=("embedding_fed",), reads=before),
    fault("8 bits by channel", c.quantised(8, 0), "scale, unknown", equal=("healthy",)),
    fault("8 bits by row", c.quantised(8, 1), "scale, unknown", equal=BOTH),
    fault("4 bits by channel", c.quantised(4, 0), "scale, unknown, broken numbers"),
    fault("beyond float16", c.overflown, "scale, weights, unknown, zero rows, broken numbers"),
    fault("another model's basis", c.other_basis, "another target"),
    fault("token ids one late", c.tokens_late, "tokens, rows, rows of other tokens"),
    fault("token ids one early", c.tokens_early, "tokens, rows, rows of other tokens"),
    fault("mask one late", c.mask_late, "no loss mask, unknown", served=False, small=BOTH),
    fault("mask one early", c.mask_early, "no loss mask, unknown", served=False, small=BOTH),
    fault("mask everywhere", c.mask_everywhere, "no loss mask", served=False),
)  # fmt: skip

# The drafter's folder is wrong. A file that does not open must be called broken.
CHECKPOINT = (
    fault("config ids reversed", k.ids(lambda ids: ids[::-1], "NickL77/BaldEagle#14"), "streams"),
    fault("config ids rotated", k.ids(lambda ids: ids[-1:] + ids[:-1], "SafeAILab/EAGLE#239"), "streams"),
    fault("config ids one more", k.ids(lambda ids: [n + 1 for n in ids], "vllm#43671"), "streams",
          drafters=("healthy",), reads=after),
    fault("config ids of the story", k.ids(lambda _: [2, 15, 27], "the published case"), "streams", drafters=("embedding_fed",)),
    fault("config ids in the other dialect", k.ids(lambda ids: [n - 1 for n in ids], "sglang#25454"), "streams",
          drafters=("healthy",), equal=("healthy",)),
    fault("config without ids", k.no_ids, "streams", equal=("healthy",)),
    fault("rope base / 10", k.base(0.1), "rope", equal=BOTH),
    fault("rope base x 10", k.base(10.0), "rope", equal=BOTH),
    fault("rope base x 100", k.base(100.0), "rope", equal=("embedding_fed",)),
    fault("positions / 4", k.linear(4.0), "rope", equal=("embedding_fed",)),
    fault("positions x 4", k.linear(0.25), "rope", small=("embedding_fed",)),
    fault("half of each head rotated", k.partial_rotary, "rope, weights, unknown"),
    fault("norm_before_residual flipped", k.flag("norm_before_residual", "vllm-project/vllm#14464"), "residual, norm"),
    fault("norm_output flipped", k.flag("norm_output", "vllm-project/vllm#46488"), "recurrence, norm"),
    fault("norms all 1", k.norms_one, "norm, weights"),
    fault("norms swapped", k.norms_swapped, "norm, weights"),
    fault("no map", k.no_map, "map, weights"),
    fault("map only as t2d", k.only_t2d, "map", equal=BOTH),
    fault("map absolute", k.absolute, "map, weights"),
    fault("map counts up", k.arange, "map, weights"),
    fault("map counts up, alone", k.arange_alone, "map"),
    fault("map zeros", k.zeros, "map, weights"),
    fault("map zeros, alone", k.zeros_alone, "map"),
    fault("map of other text", k.rebuilt, "map, head"),
    fault("head random", k.head_random, "head, weights"),
    fault("head of the first ids", k.head_first, "head, map"),
    fault("head rows shifted", k.head_shifted, "head, map"),
    fault("no head", k.no_head, "head", equal=BOTH),
    fault("embedding random", k.embedding_random, "embedding"),
    fault("embedding rows shifted", k.embedding_shifted, "embedding, tokens"),
    fault("embedding of another model", k.embedding_other, "embedding"),
    fault("fc random", k.fc_random, "weights, unknown"),
    fault("layer random", k.block_random, "weights, unknown"),
    fault("gate and up swapped", k.gate_up, "weights, unknown"),
    fault("halves of q, k, v swapped", k.halves, "weights, unknown, norm"),
    fault("a weight is NaN", k.not_a_number, "weights"),
    fault("a weight is missing", k.cut_off, "weights"),
    fault("head_dim wrong", k.head_dim, "weights, unknown"),
)  # fmt: skip

# The engine runs another drafter than the file holds.
ENGINE = (
    fault("map ignored", e.map_ignored, "map"),
    fault("engine adds one to the ids", e.ids_late, "streams", reads=after),
    fault("engine's own choice of streams", e.on_streams(2, 15, 27), "streams", drafters=("embedding_fed",)),
    fault("engine joins in reverse", e.slots_swapped, "streams"),
    fault("residual from the other side", e.residual_flipped, "residual, norm"),
    fault("rope base not read", e.base_dropped, "rope", equal=BOTH),
    fault("rope scaling of the target", e.scaling_added, "rope", equal=("embedding_fed",)),
    fault("states of step 1 fed again", e.stale, "recurrence", equal=("embedding_fed",)),
    fault("target's states fed again", e.unfed, "recurrence"),
    fault("states of another row", e.mixed, "recurrence"),
    fault("decode positions + 1", e.ahead(1), "positions", equal=BOTH),
    fault("decode positions + 8", e.ahead(8), "positions", equal=BOTH),
    fault("norm_output not read", e.feed_flipped, "recurrence, norm"),
    fault("tokens one late", e.tokens_late, "tokens, rows"),
    fault("head not loaded", e.head_random, "head"),
    fault("embedding not loaded", e.embedding_random, "embedding"),
    fault("run as EAGLE", e.eagle_one, "unknown, weights, streams, algorithm", where=("flags",)),
    fault("embedding's norm left out", e.norm_skipped, "norm"),
    fault("one token proposed always", e.constant, "head, map, weights, unknown"),
    fault("first round of each request lost", None, "unknown, rows, positions", equal=BOTH),
    fault("one request in four lost", None, "unknown"),
)
SPOILED = {"first round of each request lost": e.first_round_lost, "one request in four lost": e.every_fourth_lost}
