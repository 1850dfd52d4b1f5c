"""What to record next time: the smallest dump and the counters that make a verdict decidable, for one checkpoint and engine."""

from dataclasses import dataclass

import pandas as pd

from ..read.checkpoint import Checkpoint
from ..read.errors import InputError

PROMPTS, TOKENS = 24, 128  # 24 prompts tell streams apart on the demo (p about 1e-6); with fewer than 13 the probe cannot accuse


@dataclass(frozen=True)
class Engine:
    """How one engine is asked for the drafter's inputs and for its counts. Sources stand in the README's table of files."""

    states: str  # how to get hidden states out of it
    ids: str  # what a captured layer's id means there
    counters: str  # where rounds and accepted drafts stand
    flags: str  # what must be noted of the command line


ENGINES = {
    "sglang": Engine(
        states="python -m eagle3lib.run.sglang on a server started with --enable-return-hidden-states, --disable-radix-cache "
        "and --chunked-prefill-size -1, drafter loaded: the rows that the drafter receives",
        ids="read from eagle_config in the drafter's config.json; before sgl-project/sglang#25454 id k captured r_{k+1}, since "
        "then r_k, unless the first id is 1",
        counters="meta_info of each answer: spec_verify_ct (rounds) and the accepted drafts beside it; or accept len in the "
        "log's Decode batch lines",
        flags="--speculative-num-steps, --speculative-eagle-topk, --speculative-num-draft-tokens (counts the root), version",
    ),
    "vllm": Engine(
        states="method extract_hidden_states with the ExampleHiddenStatesConnector, prefix caching off, one token a request",
        ids="boundary ids: id n captures r_n; n = number of layers gives the last state before the final norm",
        counters="/metrics: vllm:spec_decode_num_drafts (rounds), ..._num_accepted_tokens, ..._num_accepted_tokens_per_pos",
        flags="--speculative-config as given (method, num_speculative_tokens, draft_sample_method), version",
    ),
    "transformers": Engine(
        states="e3.record and e3.write_captures",
        ids="n itself: r_n is the residual stream after n decoder layers",
        counters="e3.speculative_decode(...).accepted: accepted drafts of each round",
        flags="none",
    ),
}


# What to record, where it comes from, what it decides, and what its size is that of. Filled from the engine and the checkpoint.
WANTED = (
    ("the rows the drafter is served", "{states}", "B, by hand on serving states; low while A is fine: capture in the server",
     "slots"),
    ("streams n = {wide} of the same tokens", ENGINES["transformers"].states,
     "A, by hand on reference states; which stream each slot was trained on", "streams"),
    ("the last state, after the final norm", "with either",
     "the recording itself: the target's head must give the next token", "last"),
    ("token ids, and which of them the target wrote", "the request and its answer, greedy", "every count needs it", "ids"),
    ("rounds and accepted drafts, K by K", "{counters}", "S, what the server reached; low while B is fine: the engine", "none"),
    ("settings and version", "{flags}", "what K really was, and what the ids meant", "none"),
    ("tokens a second without drafter, and with it at K = 1 and K", "the same prompts, one request at a time",
     "whether a perfect drafter could pay at all", "none"),
)  # fmt: skip


def streams_to_record(ckpt: Checkpoint) -> tuple[int, ...]:
    """r_0, every configured stream with its two neighbours, and r_L where the target is known: what each slot may hold."""
    L = ckpt.target.n_layers if ckpt.target else None
    near = {n + d for n in ckpt.recipe.streams or () for d in (-1, 0, 1)} | {0} | ({L} if L else set())
    return tuple(sorted(n for n in near if n >= 0 and (L is None or n <= L)))


def what_to_record(ckpt: Checkpoint, engine: str = "sglang", prompts: int = PROMPTS, tokens: int = TOKENS) -> pd.DataFrame:
    """A row for each thing to record: what, where it comes from in `engine`, why, and its size in MB at 2 bytes a number.

    Raises InputError for an engine that is not in the table.
    """
    if engine not in ENGINES:
        raise InputError(f"engine: {engine!r} is not one of {', '.join(ENGINES)}")
    wide, numbers = streams_to_record(ckpt), prompts * tokens * ckpt.recipe.target_hidden_size  # of one stream
    told = {**vars(ENGINES[engine]), "wide": ", ".join(map(str, wide))}
    many = {
        "slots": ckpt.recipe.n_streams * numbers,
        "streams": len(wide) * numbers,
        "last": numbers,
        "ids": 2 * prompts * tokens,
    }
    rows = [(what.format(**told), where.format(**told), why, many.get(of, 0) * 2 / 1e6) for what, where, why, of in WANTED]
    return pd.DataFrame(rows, columns=["record", f"where it comes from ({engine})", "what it decides", "MB"])
