"""What config.json says against the tensors, the target, and what each engine makes of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from ..read.checkpoint import Checkpoint
from ..read.config import Fields, layer_ids
from ..read.rope_config import read_rope
from ..read.tensors import at
from .engines import captured
from .finding import Finding
from .hypotheses import config_line, name_of

# The places that may give rotary positions: name, nest, keys.
SCALED, SETS, INNER = ("rope_theta", "rope_scaling"), ("rope_parameters",), "transformer_layer_config"
ROPE_PLACES = (
    ("top level", (), SCALED),
    ("rope_parameters", (), SETS),
    (INNER, (INNER,), SCALED),
    (f"{INNER}.rope_parameters", (INNER,), SETS),
)


@dataclass(frozen=True)
class Rule:
    """Fires when `when` is true of the facts of a checkpoint (`facts_of`); the words are filled from them."""

    level: str
    when: Callable[[SimpleNamespace], object]
    what: str
    name: str
    change: str = ""
    settle: str = ""
    where: str = "config"
    evidence: Callable[[SimpleNamespace], dict] = lambda f: {}


# Absent, twice the same, beyond the target, not ascending (vllm-project/vllm#50514).
LAYER_IDS = (
    Rule("warning", lambda f: layer_ids(f.config) is None,
         "config.json names no layers: engines take their default (vllm-project/vllm#50170)", "streams", "{line}"),
    Rule("fault", lambda f: len(set(f.streams)) < len(f.streams),
         "{named}: one stream twice; engines capture each once, so fc gets too few", "streams", "ids of different layers"),
    Rule("fault", lambda f: f.beyond, "{named}: {there}", "streams", "ids of layers that there are"),
    Rule("fault", lambda f: list(f.streams) != sorted(f.streams),
         "{named} are not ascending: engines join them ascending whatever the order of the list", "streams",
         "train on ascending ids, or reorder the columns of fc", "the probe: captures",
         evidence=lambda f: {"as captured": name_of(tuple(sorted(f.streams)))}),
)  # fmt: skip
WIDTHS = ("hidden_size", "draft_vocab_size", "num_key_value_heads", "kv_lora_rank", "q_lora_rank", "intermediate_size")
SWITCHES = {"use_last_layernorm": True, "use_input_layernorm_in_first_layer": True, "use_mtp_layernorm": False}  # as they are run
# Fields that lie, and those that engines read otherwise than the tensors have it.
FIELDS = (
    Rule("warning", lambda f: type(f.layers) is int and f.layers != f.r.n_layers and INNER not in f.config,
         "num_hidden_layers is {layers}, the file holds {r.n_layers}: an engine that builds by it looks for tensors in vain",
         "layers", '"num_hidden_layers": {r.n_layers}'),
    *(Rule("warning", lambda f, key=key: type(f.config.get(key)) is int and f.true[key] not in (None, f.config[key]),
           f"{key} is {{config[{key}]}}, the tensors say {{true[{key}]}}: an engine that builds by it cannot load the file",
           "width", f'"{key}": {{true[{key}]}}') for key in WIDTHS),
    *(Rule("warning", lambda f, key=key, part=part: f.config.get(key) is True and not any(part in name for name in f.biases),
           f"{key} is true, and the file has no such biases: engines that make them leave them at zero, or refuse",
           "weights", f'"{key}": false') for key, part in (("attention_bias", ".self_attn."), ("mlp_bias", ".mlp."))),
    Rule("warning", lambda f: f.r.norm_before_fc and f.r.fc_norm,
         "norm_before_fc and fc_norm are both true: vLLM applies both, TensorRT-LLM the second only", "norm",
         settle="the trainer's settings"),
    *(Rule("warning", lambda f, key=key, usual=usual: f.nest.get(key) not in (None, usual),
           f"eagle_config.{key} is {{said[{key}]}}, which is not run here: the forward is the usual one", "norm",
           settle="the trainer's settings, or the probe") for key, usual in SWITCHES.items()),
    Rule("warning", lambda f: f.config.get("tie_word_embeddings") is True and "lm_head.weight" in f.names,
         "tie_word_embeddings is true, but the file has its own lm_head: SGLang ties the head to the embedding all the same",
         "head", '"tie_word_embeddings": false'),
    Rule("warning", lambda f: f.config.get("quantization_config") and not f.scales,
         "quantization_config stands beside weights that are not quantised: copied from the target, and misleading to engines",
         "quantisation", "leave quantization_config out"),
    Rule("note", lambda f: f.r.target_hidden_size != f.r.hidden_size,
         "the drafter is {r.hidden_size} wide, the target {r.target_hidden_size}: none may borrow its embedding", "width"),
    Rule("warning", lambda f: f.layout.base_10000 and "trains with base 10000" in f.r.sources.get("rope", ""),
         "rope: {r.sources[rope]}; engines that follow config.json serve it on other positions (wejoncy/sfllm#32)", "rope",
         '"rope_theta": 10000', "the probe: captures"),
)  # fmt: skip


def facts_of(ckpt: Checkpoint) -> SimpleNamespace:
    """What rules ask of a checkpoint: its fields, the true widths, and the words for its streams."""
    r, config, streams = ckpt.recipe, ckpt.config, ckpt.recipe.streams or ()
    L, nest = ckpt.target.n_layers if ckpt.target else None, config.get("eagle_config") or {}
    beyond = [n for n in streams if n < 0 or (L is not None and n > L)]
    true = (r.hidden_size, r.draft_vocab_size, r.n_kv_heads, r.mla and r.mla.kv_rank, r.mla and r.mla.q_rank,
            ckpt.files.headers[ckpt.names["layers.0.mlp.gate_proj.weight"]].shape[0])  # fmt: skip
    return SimpleNamespace(
        r=r, config=config, nest=nest, said={key: str(value).lower() for key, value in nest.items()}, names=ckpt.names,
        biases=[name for name in ckpt.names if name.endswith(".bias")], scales=ckpt.scales, layout=ckpt.layout,
        layers=config.get("num_hidden_layers"), true=dict(zip(WIDTHS, true, strict=True)), streams=streams, beyond=beyond,
        named=name_of(streams), there=f"the target has r_0 to r_{L}" if L else f"there is no r_{beyond[0]}" if beyond else "",
        line=config_line(streams) if streams else '"eagle_aux_hidden_state_layer_ids": the trained ones',
    )  # fmt: skip


def fired(rules: Sequence[Rule], facts: SimpleNamespace) -> Iterator[Finding]:
    """The Findings of the rules that the facts fire."""
    for rule in (rule for rule in rules if rule.when(facts)):
        what, change, settle = (words.format(**vars(facts)) for words in (rule.what, rule.change, rule.settle))
        yield Finding(rule.level, rule.where, what, rule.evidence(facts), change=change, settle=settle, name=rule.name)


def of_layer_ids(ckpt: Checkpoint) -> Iterator[Finding]:
    return fired(LAYER_IDS, facts_of(ckpt))


def of_the_config(ckpt: Checkpoint) -> Iterator[Finding]:
    return fired(FIELDS, facts_of(ckpt))


def of_engines(ckpt: Checkpoint) -> Iterator[Finding]:
    """Engines that would capture other streams than this library reads from the same config."""
    mine, L = ckpt.recipe.streams, ckpt.target.n_layers if ckpt.target else None
    same, unknown = [], []
    for one in captured(ckpt.config, L):
        who = f"{one.rule.engine} ({one.rule.versions})"
        if mine is None or one.streams is None:
            unknown.append(who)
        elif one.streams == tuple(mine):
            same.append(who)
        else:
            theirs, settle = name_of(one.streams), "the probe on captures says which was trained on"
            what = f"{who} would capture {theirs} from this config ({one.read_from}); here it is read as {name_of(mine)}"
            yield Finding("warning", "config", what, {"source": one.rule.source}, settle=settle, name="streams")
    if unknown:
        what = f"{', '.join(unknown)} would take their default, which depends on the target's number of layers"
        yield Finding("open", "config", what, settle="the target's folder (--target)", name="streams")
    if same:
        yield Finding("ok", "config", f"{', '.join(same)} would capture {name_of(mine)}, as it is read here")


def of_positions(ckpt: Checkpoint) -> Iterator[Finding]:
    """Rotary tables of several places compared as tables; the length that the drafter allows."""
    tables = _rope_tables(ckpt)
    if len({table.round(9).tobytes() for table in tables.values()}) > 1:
        what = f"config.json gives rope in {len(tables)} places that mean different frequencies: {', '.join(tables)}"
        slowest = {f"slowest pair, {place}": float(table[-1]) for place, table in tables.items()}
        yield Finding("warning", "config", what, slowest, settle="the trainer's settings, or the probe", name="rope")
    stored = next((theirs for theirs in ckpt.ignored if theirs.endswith("rotary_emb.inv_freq")), None)
    if stored is not None and not _near(ckpt.files[stored].double().numpy(), np.array(ckpt.recipe.rope.inv_freq)):
        what = f"the rotary table in the file ({stored}) is not what config.json makes: training had another base or scaling"
        yield Finding("fault", "config", what, {"slowest pair, file": float(ckpt.files[stored][-1])}, name="rope",
                      settle="the probe: captures")  # fmt: skip
    if ckpt.target is None:
        return
    rope, theirs = ckpt.recipe.rope, ckpt.target.config
    base = theirs.get("rope_theta") or (theirs.get("rope_parameters") or {}).get("rope_theta")
    if base and not ckpt.recipe.mla and not _near(rope.inv_freq[1], base ** (-1 / len(rope.inv_freq))):
        what = f"rope: the drafter has {rope.about}, the target base {base:g}; most trainers take the target's, not all"
        yield Finding("note", "config", what, settle="the trainer's settings, or the probe", name="rope")
    mine, allowed = (_length(c) for c in (ckpt.config, theirs))
    if mine and allowed and mine < allowed:
        what = f"max_position_embeddings is {mine:,}, the target's {allowed:,}: vLLM limits the context to it"
        yield Finding("warning", "config", what, change=f'"max_position_embeddings": {allowed}', name="length")


def _rope_tables(ckpt: Checkpoint) -> dict[str, np.ndarray]:
    """Inverse frequencies by each place of config.json that gives a base or a scaling."""
    r, longest = ckpt.recipe, {"max_position_embeddings": _length(ckpt.config) or 2**20}
    tables = {}
    for place, nest, keys in ROPE_PLACES:
        where = at(ckpt.config, nest) or {}
        if part := {key: where[key] for key in keys if where.get(key)}:
            rope = read_rope(Fields(longest | part, "config.json"), r.mla.rope if r.mla else r.head_dim, ckpt.layout, bool(r.mla))
            tables[place] = np.array(rope.inv_freq)
    return tables


def _near(a: np.ndarray | float, b: np.ndarray | float) -> bool:
    """The same frequencies, up to half precision."""
    return np.shape(a) == np.shape(b) and bool(np.allclose(a, b, rtol=0.01))


def _length(config: dict) -> int | None:
    nests = (config, config.get("text_config"), config.get("transformer_layer_config"))
    found = (nest.get("max_position_embeddings") for nest in nests if isinstance(nest, dict))
    return next((n for n in found if type(n) is int), None)
