"""What may be true of a drafter and cannot be read off its files: named functions, in one table.

Each takes a drafter and a sample and returns both, one of them changed; neither input is touched. Where the drafter does better
so, it was trained so. Where an engine's counts are those of the drafter so changed, the engine runs it so.
Sources: the disagreements between producers and the public fault reports named beside each group.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..read.capture import Capture, Label
from ..read.checkpoint import Checkpoint
from ..read.recipe import Recipe
from ..read.rope import Rope
from ..read.tensors import Lazy
from ..run.drafter import Drafter

Pair = tuple[Drafter, Capture]


@dataclass(frozen=True)
class Hypothesis:
    name: str
    # streams, rows, tokens, scale, norm of states, residual, norm, rope, weights, map, head, embedding, recurrence, positions
    kind: str
    apply: Callable[[Drafter, Capture], Pair]
    change: str  # what to do about it
    step: int = 1  # the first draft step at which it shows
    streams: tuple[Label, ...] | None = None  # of the kind "streams"


def name_of(streams: Sequence[Label] | None) -> str:
    return "streams " + (", ".join(f"r_{n}" if isinstance(n, int) else n for n in streams) if streams else "not said")


def config_line(streams: Sequence[Label]) -> str:
    """The line of config.json that makes engines capture these streams, as boundary ids (id n captures r_n).

    Of slots without labels only their order can be told.

    vLLM reads boundary ids at the top level; SGLang reads them under `eagle_config` since sgl-project/sglang#25454, but takes
    ids that begin with 1 for ids of layers whose output is taken.
    """
    if not all(isinstance(n, int) for n in streams):
        return f"hand the recorded slots over in the order {', '.join(map(str, streams))}"
    line = f'"eagle_aux_hidden_state_layer_ids": {list(streams)}'
    return line + " (not sayable to SGLang: it adds 1 to ids that begin with 1)" if streams[0] == 1 else line


def streams_are(streams: tuple[Label, ...]) -> Hypothesis:
    """The slots of `fc` hold these streams, in this order (vllm-project/vllm#50170, sgl-project/sglang#25454)."""

    def apply(drafter: Drafter, capture: Capture) -> Pair:
        return drafter.with_recipe(drafter.recipe.replace(streams=streams)), capture

    return Hypothesis(name_of(streams), "streams", apply, config_line(streams), streams=streams)


def on_streams(function: Callable[[Capture, Label], Tensor]) -> Callable[[Drafter, Capture], Pair]:
    """Every stream of the sample replaced by `function(capture, label)`."""
    return lambda drafter, capture: (
        drafter,
        capture.replace(streams=Lazy(capture.streams, lambda label: function(capture, label))),
    )


def ends_normed(capture: Capture, recipe: Recipe) -> bool:
    """Whether the sample holds the state after the final norm, as wide as the streams."""
    return capture.last is not None and capture.last_kind == "post_norm" and capture.last.shape[1] == recipe.target_hidden_size


def _normed_end(capture: Capture, like: Tensor) -> Tensor:
    """The state after the final norm, as many rows as `like`."""
    return capture.last.float()[torch.arange(len(like)).clamp(max=len(capture.last) - 1)]


def shifted(x: Tensor, by: int) -> Tensor:
    """Row t holds what row t + by held; at the edge the last known row again. x [R, Ht]."""
    R = len(x)
    return x[(torch.arange(R) + by).clamp(0, R - 1)]


def of_captures(streams: Sequence[Label]) -> Iterator[Hypothesis]:
    """Rows late or early (sgl-project/sglang#10059), scale (sgl-project/sglang#28343), norms (vllm-project/speculators#313),
    the residual (IBM/vLLM-Hook#11), tokens shifted (sgl-project/SpecForge#455).
    """
    for by in (1, -1, 2, -2):
        name = f"states {abs(by)} row{'s' * (abs(by) > 1)} {'late' if by > 0 else 'early'}"
        change = f"hand each token the state recorded {abs(by)} row{'s' * (abs(by) > 1)} {'after' if by > 0 else 'before'} it"
        yield Hypothesis(name, "rows", on_streams(lambda c, n, by=by: shifted(c.stream(n), by)), change)
    for factor in (0.125, 0.5, 2.0, 8.0):
        name = f"states {1 / factor:g} times as large as in training"
        change = f"multiply the states by {factor:g} before fc, or find who scaled them"
        yield Hypothesis(name, "scale", on_streams(lambda c, n, f=factor: c.stream(n) * f), change)
    yield Hypothesis(
        "trained on states of unit size", "norm of states",
        on_streams(lambda c, n: (x := c.stream(n)) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        "norm_before_fc (or the producer's own norm) belongs before fc",
    )  # fmt: skip
    yield Hypothesis(
        "trained on states without their residual", "residual",
        on_streams(lambda c, n: c.stream(n) - c.stream(n - 1) if n else c.stream(n)),
        "capture hidden_states + residual, and train on it; this checkpoint needs r_n - r_{n-1}",
    )  # fmt: skip
    if streams:  # hidden_states[-1] of transformers is the state after the final norm, no residual stream
        yield Hypothesis(
            "the last slot holds the state after the target's final norm", "norm of states",
            on_streams(lambda c, n, slot=streams[-1]: _normed_end(c, c.stream(n)) if n == slot else c.stream(n)),
            "the last layer's state is taken after the final norm: capture it as training did",
        )  # fmt: skip
    for token, name in ((0, "tokens one behind"), (2, "tokens one ahead")):
        yield Hypothesis(
            name, "tokens", lambda d, c, t=token: (d.but(wiring=replace(d.wiring, token=t)), c),
            f"row t embeds x_(t+1); here it was trained, or is served, on x_(t+{token})",
        )  # fmt: skip


def of_recipe(drafter: Drafter) -> Iterator[Hypothesis]:
    """Flags and rotary positions (Automodel#2920, #2399, vllm-project/vllm#38111, #46488, sgl-project/sglang#25015)."""
    r = drafter.recipe

    def recipe_with(**changes) -> Callable[[Drafter, Capture], Pair]:
        return lambda d, c: (d.with_recipe(d.recipe.replace(**changes)), c)

    def wired(**changes) -> Callable[[Drafter, Capture], Pair]:
        return lambda d, c: (d.but(wiring=replace(d.wiring, **changes)), c)

    flag = not r.norm_before_residual
    yield Hypothesis(
        f"norm_before_residual {str(flag).lower()}", "norm", recipe_with(norm_before_residual=flag),
        f'"norm_before_residual": {str(flag).lower()}',
    )  # fmt: skip
    if "input_norm.weight" in drafter.weights:
        flag = not r.norm_before_fc
        yield Hypothesis(
            f"norm_before_fc {str(flag).lower()}", "norm", recipe_with(norm_before_fc=flag),
            f'"norm_before_fc": {str(flag).lower()}',
        )  # fmt: skip
    for norm in ("input_layernorm", "hidden_norm", "norm"):  # vllm-project/vllm#11672
        yield Hypothesis(f"{norm} left out", "norm", wired(without=norm), f"apply {norm} as training did, or not at all")
    yield Hypothesis("the state normed twice", "norm", wired(double=True), "serve with the producer's own engine, or retrain")
    width = r.mla.rope if r.mla else r.head_dim
    for base in (1e4, 1e5, 5e5, 1e6, 1e7):
        rope = Rope.plain(base, width)
        if rope.inv_freq != r.rope.inv_freq:
            yield Hypothesis(f"rope base {base:,.0f}", "rope", recipe_with(rope=rope), f'"rope_theta": {base:.0f}')
    for factor in (0.25, 4.0, 8.0):
        yield Hypothesis(
            f"rope positions divided by {factor:g}", "rope", recipe_with(rope=r.rope.linear(factor)),
            f'"rope_scaling": {{"rope_type": "linear", "factor": {factor:g}}}, on top of what there is',
        )  # fmt: skip
    for part in (0.25, 0.5):
        rope = Rope.plain(_base(r.rope), int(width * part))
        change = f'"partial_rotary_factor": {part}'
        yield Hypothesis(f"rope on {part:.0%} of each head", "rope", recipe_with(rope=rope), change)
    flag = not r.norm_output
    yield Hypothesis(
        f"norm_output {str(flag).lower()}", "recurrence", recipe_with(norm_output=flag),
        f'"norm_output": {str(flag).lower()} (feed the next step the state {"after" if flag else "before"} the final norm)', 2,
    )  # fmt: skip
    yield Hypothesis(
        "every step fed the first state again", "recurrence", wired(stale=True), "feed each step the state before", 2
    )
    for later in (1, -1):
        yield Hypothesis(
            f"draft positions {abs(later)} too {'high' if later > 0 else 'low'}", "positions", wired(later=later),
            "let step k of row t take position t + k", 2,
        )  # fmt: skip


def _base(rope: Rope) -> float:
    """The base of plain positions, from the second pair's frequency: base ** (-1 / half)."""
    return rope.inv_freq[1] ** -len(rope.inv_freq)


def of_weights(drafter: Drafter, ckpt: Checkpoint) -> Iterator[Hypothesis]:
    """The vocabulary map (vllm-project/vllm#18909, verl-SpeCo#67), head and embedding from either side
    (lightseekorg/TorchSpec#38, sgl-project/sglang#27829), norms and halves exchanged.
    """
    ids, V = drafter.target_ids, drafter.recipe.vocab_size
    places = torch.arange(len(ids), device=ids.device)
    for name, other in (("absent", places), ("read as ids, not offsets", ids - places), ("read twice", (ids + places) % V)):
        if not torch.equal(other, ids):
            yield Hypothesis(
                f"d2t {name}", "map", lambda d, c, other=other: (d.but(target_ids=other), c),
                "d2t must hold offsets: target id minus draft id",
            )  # fmt: skip
    if ckpt.target is not None and ckpt.target.hidden_size == drafter.recipe.hidden_size:
        head = ckpt.target.head_rows(ckpt.target_ids).to(drafter.device, drafter.dtype)
        if not torch.equal(head, drafter.head):
            yield Hypothesis(
                "the target's head", "head", lambda d, c: (d.but(head=head), c),
                "leave lm_head.weight out of the file, or export the trained one",
            )  # fmt: skip
        first = ckpt.target.head_rows(places).to(drafter.device, drafter.dtype)
        yield Hypothesis(
            "the first rows of the target's head", "head", lambda d, c: (d.but(head=first), c), "gather the head's rows by d2t"
        )
        if "embed_tokens.weight" in ckpt:
            table = ckpt.target.embedding()
            yield Hypothesis(
                "the target's embedding", "embedding", lambda d, c: (d.but(embedding=table), c),
                "leave embed_tokens.weight out of the file, or export the trained one",
            )  # fmt: skip

    def weights_with(**changes: Tensor) -> Callable[[Drafter, Capture], Pair]:
        return lambda d, c: (d.but(weights={**d.weights, **changes}), c)

    w, layer = drafter.weights, "layers.0."
    left, right = w[layer + "input_layernorm.weight"], w[layer + "hidden_norm.weight"]
    yield Hypothesis(
        "input_layernorm and hidden_norm exchanged", "weights",
        weights_with(**{layer + "input_layernorm.weight": right, layer + "hidden_norm.weight": left}),
        "exchange the two tensors' names",
    )  # fmt: skip
    both = 2 * drafter.recipe.hidden_size
    swapped = {n: _halves(t) for n, t in w.items() if n.startswith(layer + "self_attn.") and t.ndim == 2 and t.shape[1] == both}
    yield Hypothesis(
        "state before embedding in the first layer", "weights", weights_with(**swapped),
        "the first layer reads [embedding, state]: exchange the halves of the columns of q, k and v",
    )  # fmt: skip
    gate, up = w[layer + "mlp.gate_proj.weight"], w[layer + "mlp.up_proj.weight"]
    exchanged = {layer + "mlp.gate_proj.weight": up, layer + "mlp.up_proj.weight": gate}
    yield Hypothesis("gate and up exchanged", "weights", weights_with(**exchanged), "exchange the two tensors' names")
    norms = {n: torch.ones_like(t) for n, t in w.items() if t.ndim == 1 and "norm" in n and not bool((t == 1).all())}
    if norms:
        yield Hypothesis("norm weights all one", "weights", weights_with(**norms), "load the norms' weights")


def _halves(weight: Tensor) -> Tensor:
    """Columns [embedding, state] exchanged. weight [out, 2H]."""
    return torch.cat(weight.chunk(2, dim=1)[::-1], dim=1)


def single_changes(drafter: Drafter, ckpt: Checkpoint, labels: Sequence[Label], last: bool = False) -> list[Hypothesis]:
    """All of the table that can be judged with streams `labels` recorded, cheap and frequent first. `last`: every sample holds
    the state after the final norm, too.
    """
    used = drafter.recipe.streams or ()
    found = [*of_captures(used if last else ()), *of_weights(drafter, ckpt), *of_recipe(drafter)]
    beside = all(isinstance(n, int) and (n == 0 or n - 1 in labels) for n in used) and bool(used)
    return [h for h in found if beside or h.kind != "residual"]
