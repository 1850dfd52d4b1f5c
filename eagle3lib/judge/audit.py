"""What speaks against a checkpoint by its files alone, before anything is run; and what no file can settle.

A list of checks, each a function from a checkpoint to Findings. What the reader refuses (shapes that contradict each other, norms
without their flags, maps that lead nowhere) does not come so far.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import torch

from ..measure.inventory import inventory
from ..read.checkpoint import Checkpoint
from ..read.config import ID_PLACES, OUTPUTS, Fields
from ..read.layouts import OPEN
from ..read.rope_config import read_rope
from .engines import captured
from .finding import Finding, Findings
from .hypotheses import config_line, name_of
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
    (it reads every tensor once). Without the target less can be compared.
    """
    tensors = inventory(ckpt) if tensors is None else tensors
    return Findings([*audit_config(ckpt, probed), *_of_tensors(ckpt, tensors)])


def audit_config(ckpt: Checkpoint, probed: Probe | None = None) -> Findings:
    """The same without what needs the tensors to be read."""
    return Findings([*(finding for check in CHECKS for finding in check(ckpt)), *_open(ckpt, probed)])


def _ids(ckpt: Checkpoint) -> tuple[str, list[int]] | None:
    """The key of the layer ids in config.json, and the ids."""
    for place in ID_PLACES:
        found: object = ckpt.config
        for key in place:
            found = found.get(key) if isinstance(found, dict) else None
        if found:
            return ".".join(place), list(found)
    return None


def of_layer_ids(ckpt: Checkpoint) -> Iterator[Finding]:
    """Absent, twice the same, beyond the target, not ascending (vllm-project/vllm#50514)."""
    L, streams = ckpt.target.n_layers if ckpt.target else None, ckpt.recipe.streams
    if _ids(ckpt) is None:
        line = config_line(streams) if streams else '"eagle_aux_hidden_state_layer_ids": the trained ones'
        what = "config.json names no layers: engines take their default (vllm-project/vllm#50170)"
        yield Finding("warning", "config", what, change=line, name="streams")
    if not streams:
        return
    if len(set(streams)) < len(streams):
        what = f"{name_of(streams)}: one stream twice; engines capture each once, so fc gets too few"
        yield Finding("fault", "config", what, change="ids of different layers", name="streams")
    beyond = [n for n in streams if n < 0 or (L is not None and n > L)]
    if beyond:
        what = f"{name_of(streams)}: the target has r_0 to r_{L}" if L else f"{name_of(streams)}: there is no r_{beyond[0]}"
        yield Finding("fault", "config", what, change="ids of layers that there are", name="streams")
    if list(streams) != sorted(streams):
        what = f"{name_of(streams)} are not ascending: engines join them ascending whatever the order of the list"
        yield Finding("warning", "config", what, {"as captured": name_of(tuple(sorted(streams)))}, settle="the probe: captures")


def of_engines(ckpt: Checkpoint) -> Iterator[Finding]:
    """Engines that would capture other streams than this library reads from the same config."""
    mine, L = ckpt.recipe.streams, ckpt.target.n_layers if ckpt.target else None
    same = []
    for one in captured(ckpt.config, L):
        who = f"{one.rule.engine} ({one.rule.versions})"
        if mine is None or one.streams is None:
            continue
        if one.streams == tuple(sorted(set(mine))):
            same.append(who)
            continue
        what = (
            f"{who} would capture {name_of(one.streams)} from this config ({one.read_from}); here it is read as {name_of(mine)}"
        )
        yield Finding("warning", "config", what, {"source": one.rule.source}, name="streams",
                      settle="the probe on captures says which was trained on")  # fmt: skip
    if same:
        yield Finding("ok", "config", f"{', '.join(same)} would capture {name_of(mine)}, as it is read here")


def of_the_map(ckpt: Checkpoint) -> Iterator[Finding]:
    """Forms of d2t that lead to different tokens of the vocabulary, so are not refused, and that no training makes."""
    r, ids = ckpt.recipe, ckpt.target_ids
    if r.draft_vocab_size == r.vocab_size:
        if not torch.equal(ids, torch.arange(r.vocab_size)):
            what = "the draft vocabulary is the target's, but d2t is no identity: engines differ in whether they use it then"
            yield Finding("warning", "d2t", what, name="map")
        return
    offsets, identity = ids - torch.arange(len(ids)), torch.equal(ids, torch.arange(len(ids)))
    steps = offsets.diff()
    told = {"draft ids": len(ids), "target ids": r.vocab_size, "last offset": int(offsets[-1])}
    if identity:
        what = f"d2t is all zeros: the draft vocabulary would be the first {len(ids):,} of {r.vocab_size:,} tokens"
        yield Finding("warning", "d2t", what, told, change="rebuild d2t from the token counts of training", name="map")
    elif len(steps) and bool((steps >= 1).all()):
        what = "d2t rises at every entry, as ids do and offsets do not: it holds ids where offsets belong (target minus draft id)"
        yield Finding("fault", "d2t", what, told, change="d2t[i] = id[i] - i", name="map")
    elif len(steps) and bool((steps < 0).any()):
        what = "the tokens of d2t are not ascending, which no trainer writes: the rows of lm_head may belong to others"
        yield Finding("warning", "d2t", what, told, settle="the probe: captures", name="map")
    if "t2d" not in ckpt:
        yield Finding("note", "d2t", "there is no t2d to hold d2t against; engines do not need it")


def of_positions(ckpt: Checkpoint) -> Iterator[Finding]:
    """Rotary tables of several places compared as tables; the length that the drafter allows."""
    tables = _rope_tables(ckpt)
    if len({table.round(9).tobytes() for table in tables.values()}) > 1:
        what = f"config.json gives rope in {len(tables)} places that mean different frequencies: {', '.join(tables)}"
        slowest = {f"slowest pair, {place}": float(table[-1]) for place, table in tables.items()}
        yield Finding("warning", "config", what, slowest, settle="the trainer's settings, or the probe", name="rope")
    if ckpt.target is None:
        return
    mine, theirs = (_length(c) for c in (ckpt.config, ckpt.target.config))
    if mine and theirs and mine < theirs:
        what = f"max_position_embeddings is {mine:,}, the target's {theirs:,}: vLLM limits the context to it"
        yield Finding("warning", "config", what, change=f'"max_position_embeddings": {theirs}', name="length")


def _rope_tables(ckpt: Checkpoint) -> dict[str, np.ndarray]:
    """Inverse frequencies by each place of config.json that gives a base or a scaling."""
    config, width = ckpt.config, ckpt.recipe.mla.rope if ckpt.recipe.mla else ckpt.recipe.head_dim
    inner = config.get("transformer_layer_config") or {}
    places = {
        "top level": {k: config[k] for k in ("rope_theta", "rope_scaling") if config.get(k)},
        "rope_parameters": {"rope_parameters": config["rope_parameters"]} if config.get("rope_parameters") else {},
        "transformer_layer_config": {k: inner[k] for k in ("rope_theta", "rope_scaling", "rope_parameters") if inner.get(k)},
    }
    longest = {"max_position_embeddings": _length(config) or 2**20}
    return {
        place: np.array(read_rope(Fields({**longest, **part}, "config.json"), width, ckpt.layout, bool(ckpt.recipe.mla)).inv_freq)
        for place, part in places.items() if part
    }  # fmt: skip


def _length(config: dict) -> int | None:
    nests = (config, config.get("text_config"), config.get("transformer_layer_config"))
    found = (nest.get("max_position_embeddings") for nest in nests if isinstance(nest, dict))
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)


def of_the_config(ckpt: Checkpoint) -> Iterator[Finding]:
    """Fields that lie, and those that engines read otherwise than the tensors have it."""
    config, r = ckpt.config, ckpt.recipe
    layers = config.get("num_hidden_layers")
    if isinstance(layers, int) and layers != r.n_layers and "transformer_layer_config" not in config:
        what = (
            f"num_hidden_layers is {layers}, the file holds {r.n_layers}: an engine that builds by it looks for tensors in vain"
        )
        yield Finding("warning", "config", what, change=f'"num_hidden_layers": {r.n_layers}', name="layers")
    if config.get("tie_word_embeddings") is True and "lm_head.weight" in ckpt:
        what = "tie_word_embeddings is true, but the file has its own lm_head: SGLang ties the head to the embedding all the same"
        yield Finding("warning", "config", what, change='"tie_word_embeddings": false', name="head")
    if config.get("quantization_config") and not ckpt.scales:
        what = (
            "quantization_config stands beside weights that are not quantised: copied from the target, and misleading to engines"
        )
        yield Finding("warning", "config", what, change="leave quantization_config out", name="quantisation")
    if r.target_hidden_size != r.hidden_size:
        what = f"the drafter is {r.hidden_size} wide, the target {r.target_hidden_size}: none may borrow its embedding"
        yield Finding("note", "config", what, name="width")
    if ckpt.layout.base_10000 and "trains with base 10000" in r.sources.get("rope", ""):
        what = f"rope: {r.sources['rope']}; engines that follow config.json serve it on other positions (wejoncy/sfllm#32)"
        yield Finding("warning", "config", what, change='"rope_theta": 10000', settle="the probe: captures", name="rope")


def of_what_engines_skip(ckpt: Checkpoint) -> Iterator[Finding]:
    """Tensors that this library uses and SGLang's loader passes over without a word (its `llama_eagle3.py`)."""
    skipped = {
        "biases of q, k, v": [n for n in ckpt.names if ".self_attn." in n and n.endswith("_proj.bias")],
        "norms of query and key heads": [n for n in ckpt.names if n.endswith(("q_norm.weight", "k_norm.weight"))],
        "input norms of later layers": [n for n in ckpt.names if n.endswith(".input_layernorm.weight") and "layers.0." not in n],
    }
    for what, names in skipped.items():
        if names:
            said = f"the file holds {what} ({len(names)}), which SGLang's Llama drafter passes over without a word"
            yield Finding(
                "warning", "tensors", said, {"first": names[0]}, change="serve it with vLLM's class for it", name="weights"
            )


CHECKS: tuple[Check, ...] = (of_layer_ids, of_engines, of_the_map, of_positions, of_the_config, of_what_engines_skip)


def _of_tensors(ckpt: Checkpoint, tensors: pd.DataFrame) -> Iterator[Finding]:
    """Whose each tensor is: never trained, the target's, or its own beside the target's."""
    new = tensors[tensors.provenance.str.startswith("untouched")]
    matrices = [name for name in new.index if len(ckpt.files.headers[ckpt.names[name]].shape) > 1]
    if matrices:
        what = f"{len(matrices)} matrices look as their module was made, never trained: {', '.join(matrices[:3])}"
        yield Finding(
            "warning", "tensors", what, dict(new.provenance[matrices[:3]]), settle="the probe: captures", name="weights"
        )
    norms = [name for name in tensors.index if name.startswith("layers.") and name.endswith("norm.weight")]
    if norms and all(name in new.index for name in norms):
        what = f"all {len(norms)} norms of the layers are ones, as before training: their weights were not exported"
        yield Finding("warning", "tensors", what, name="norm")
    for name, what in (("embed_tokens.weight", "embedding"), ("lm_head.weight", "head")):
        if ckpt.target is None or name not in tensors.index:
            continue
        if tensors.provenance[name] == "the target's":
            yield Finding("note", "tensors", f"the {what} is the target's, row by row: it could be left out")
        elif name == "embed_tokens.weight":
            said = "the embedding is not the target's: SGLang serves with the target's all the same where the widths agree"
            yield Finding("warning", "tensors", said, settle="the probe: captures", name="embedding")
    vocab = ckpt.recipe.vocab_size
    rows = ckpt.target.embedding().shape[0] if ckpt.target else vocab
    if rows != vocab:
        what = f"the target's embedding has {rows:,} rows, the drafter's vocabulary {vocab:,}: padding, or another target"
        yield Finding("note" if rows > vocab else "warning", "config", what, name="vocabulary")


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
    ids = _ids(ckpt)
    if ids and ids[0] != OUTPUTS and ids[1][0] not in (1, 2) and min(ids[1]) >= 0:
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
