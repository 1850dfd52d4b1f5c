"""What a running vLLM hands its drafter, and what becomes of its drafts: a tap on an engine in this very process.

    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0"}  # before vllm is imported
    llm = vllm.LLM("my-target", speculative_config={"method": "eagle3", "model": "my-drafter", "num_speculative_tokens": 3},
                   enable_prefix_caching=False, async_scheduling=False)
    with tapped(llm) as tap:
        outputs = llm.generate(prompts, vllm.SamplingParams(temperature=0, max_tokens=128))
    e3.write_captures("at-server", tap.captures(outputs), target="my-target", n_layers=None, dtype=None)
    tap.rounds  # of each request: where a round starts, what was drafted, how much of it was accepted

Rows are kept by request and position: several requests at once, prefill in chunks, and requests that are computed again after
a preemption come out right. They are held in memory until the tap is dropped.

Refused: an engine in another process or on several devices, vLLM's second model runner (its default where Triton runs), other
methods than eagle3, rows that the prefix cache spared the engine, rotary positions in three parts (images), asynchronous
scheduling (drafts are made for requests that have ended).

Known from vLLM 0.32.0, by runs on a CPU. The way to the drafter: `v1/engine/core_client.py` (InprocClient),
`v1/executor/uniproc_executor.py`, `v1/worker/gpu_model_runner.py`. The arguments of `propose`, a request's rows side by side,
rejected ones behind `token_indices_to_sample`: `v1/spec_decode/llm_base_proposer.py`. The engine's own ids of requests, the
caller's with random characters behind a dash: `v1/engine/input_processor.py`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..read.capture import Capture
from ..read.errors import InputError
from .rounds import Round

VERSION = "0.32.0"
IN_PROCESS = "set VLLM_ENABLE_V1_MULTIPROCESSING=0 before vllm is imported, and use one device"
WITH_EAGLE3 = "give speculative_config={'method': 'eagle3', ...}, and set VLLM_USE_V2_MODEL_RUNNER=0 before vllm is imported"
TO_RUNNER = ("llm_engine", "engine_core", "engine_core", "model_executor", "driver_worker", "worker", "model_runner")
ARGUMENTS = (
    "target_positions", "target_token_ids", "next_token_ids", "token_indices_to_sample", "common_attn_metadata",
)  # fmt: skip


@dataclass
class Request:
    """What came by of one request, by position."""

    prompt_tokens: int
    tokens: dict[int, int] = field(default_factory=dict)
    rows: dict[int, Tensor] = field(default_factory=dict)  # what the drafter was fed, [W]: its streams joined
    embedded: dict[int, int] = field(default_factory=dict)  # the token that was embedded beside each row
    rounds: list[Round] = field(default_factory=list)
    drafted: tuple[int, list[int]] = (-1, [])  # the row that was last drafted from, and the drafts

    def misfed(self) -> list[int]:
        """Rows beside which another token was embedded than the one with which the text goes on."""
        return [t for t, token in sorted(self.embedded.items()) if self.tokens[t + 1] != token]


class Tap:
    """What `tapped` gathers. `requests`: by the engine's own ids, in the order in which they came."""

    def __init__(self, runner: object):
        self.requests: dict[str, Request] = {}
        self.runner, self.fed = runner, torch.empty(0)

    @property
    def rounds(self) -> dict[str, list[Round]]:
        """The rounds of each request, by the engine's own id."""
        return {name: request.rounds for name, request in self.requests.items()}

    def request(self, request_id: str) -> Request:
        """What came by of the request of that id, the engine's or the caller's. Raises InputError when nothing did."""
        found = [one for name, one in self.requests.items() if request_id in (name, name.rpartition("-")[0])]
        if len(found) != 1:
            raise InputError(
                f"tap: {len(found)} requests of id {request_id} came by, expected one: generate inside `with tapped(llm)`, with "
                "n=1 in the sampling parameters"
            )
        return found[0]

    def captures(self, outputs: Sequence | None = None, slots: int = 3) -> list[Capture]:
        """A Capture of each request, its streams slot0, slot1, ...: the rows of committed tokens, none of rejected drafts.

        `outputs`, what `LLM.generate` returned, ends each text where its request ended; without it a text goes on with what
        the engine accepted past that. T tokens have T - 1 rows. `slots`: how many streams are joined. Raises InputError when
        rows are missing.
        """
        if outputs is None:
            texts = {name: [token for _, token in sorted(one.tokens.items())] for name, one in self.requests.items()}
        else:
            texts = {o.request_id: [*o.prompt_token_ids, *o.outputs[0].token_ids] for o in outputs}
        return [_capture(name, self.request(name), text, slots) for name, text in texts.items()]

    def combine(self, call, states: Tensor) -> Tensor:
        """In place of the drafter's `combine_hidden_states`: keeps the rows [rows, W] that it is given."""
        self.fed = states.to("cpu", copy=True)
        return call(states)

    def propose(self, call, *args, **kwargs) -> Tensor:
        """In place of the drafter's `propose`, which tells whose rows these are and returns drafts [requests, K]."""
        absent = [name for name in ARGUMENTS if name not in kwargs]
        if absent:
            raise InputError(f"tap: the drafter's propose is called without {absent[0]}, which vLLM {VERSION} gives it by name")
        if kwargs["target_positions"].ndim != 1:
            raise InputError("tap: rotary positions come in three parts, which do not tell a text's rows apart: use a text model")
        bounds = kwargs["common_attn_metadata"].query_start_loc.tolist()  # before the call, which changes it
        last = kwargs["token_indices_to_sample"]
        last = [bound - 1 for bound in bounds[1:]] if last is None else last.tolist()
        positions, tokens, after = (kwargs[name].tolist() for name in ("target_positions", "target_token_ids", "next_token_ids"))
        drafts = call(*args, **kwargs)
        for i, (name, drafted) in enumerate(zip(self.runner.input_batch.req_ids, drafts.tolist(), strict=True)):
            request = self.requests.setdefault(name, Request(self.runner.requests[name].num_prompt_tokens))
            first, end, given = bounds[i], last[i] + 1, tokens[bounds[i] + 1 : bounds[i + 1]]
            row, guessed = request.drafted
            # a verification reads the last token, then what was drafted after it; all else reads a prompt
            if given and positions[first] == row + 1 >= request.prompt_tokens and given == guessed[: len(given)]:
                request.rounds.append(Round(row, tuple(given), end - first - 1, after[i]))
            following = [*tokens[first + 1 : end], after[i]]
            for t, token, beside, fed in zip(
                positions[first:end], tokens[first:end], following, self.fed[first:end], strict=True
            ):
                request.tokens[t], request.embedded[t], request.rows[t] = token, beside, fed
            request.tokens[positions[end - 1] + 1] = after[i]  # of an unfinished prompt it is none: its next chunk mends that
            request.drafted = (positions[end - 1], drafted)
        return drafts


def _capture(name: str, request: Request, text: list[int], slots: int) -> Capture:
    T = len(text)
    missing = [t for t in range(T - 1) if t not in request.rows]
    if missing:
        raise InputError(
            f"{name}: {len(missing)} of {T - 1} rows never reached the drafter, the first at position {missing[0]}: start vLLM "
            "with enable_prefix_caching=False, and generate inside `with tapped(llm)`"
        )
    rows = torch.stack([request.rows[t] for t in range(T - 1)])  # [T - 1, W]
    if rows.shape[1] % slots:
        raise InputError(
            f"{name}: rows are {rows.shape[1]} wide, no multiple of {slots}: give slots=, how many streams are joined"
        )
    return Capture(
        name=name,
        token_ids=torch.tensor(text),
        loss_mask=torch.arange(T) >= request.prompt_tokens,
        streams={f"slot{i}": part for i, part in enumerate(rows.split(rows.shape[1] // slots, dim=1))},
        known={f"slot{i}": f"slot {i} of what vLLM gave its drafter" for i in range(slots)},
    )


def _at(start: object, *names: str, remedy: str) -> object:
    """The attribute at the end of `names`. Raises InputError for the first that is not there."""
    found, path = start, type(start).__name__
    for name in names:
        if getattr(found, name, None) is None:
            version = getattr(sys.modules.get("vllm"), "__version__", "of unknown version")
            raise InputError(
                f"{path} has no {name}, where vLLM {VERSION} keeps an EAGLE-3 drafter of this process (vllm here: {version}): "
                f"{remedy}"
            )
        found, path = getattr(found, name), f"{path}.{name}"
    return found


@contextmanager
def _replaced(owner: object, name: str, stand_in) -> Iterator[None]:
    """`owner.name` calls `stand_in` with the method itself in front; afterwards all is as it was."""
    method, own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, lambda *args, **kwargs: stand_in(method, *args, **kwargs))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, method)
        else:
            delattr(owner, name)


@contextmanager
def tapped(llm: object) -> Iterator[Tap]:
    """While open, what the engine of `llm`, a `vllm.LLM` in this process, feeds its EAGLE-3 drafter is kept in the Tap.

    Raises InputError when this engine is built otherwise: which attribute was looked for, and what to do.
    """
    runner = _at(llm, *TO_RUNNER, remedy=IN_PROCESS)
    if getattr(runner, "use_async_scheduling", False):
        raise InputError("vLLM: schedules asynchronously, which drafts for requests that have ended: give async_scheduling=False")
    drafter = _at(runner, "drafter", remedy=WITH_EAGLE3)
    _at(drafter, "propose", remedy=WITH_EAGLE3)
    _at(drafter, "model", "combine_hidden_states", remedy=WITH_EAGLE3)
    tap = Tap(runner)
    with ExitStack() as stack:
        stack.enter_context(_replaced(drafter.model, "combine_hidden_states", tap.combine))
        stack.enter_context(_replaced(drafter, "propose", tap.propose))
        yield tap
