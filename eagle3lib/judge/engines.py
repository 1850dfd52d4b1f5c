"""What each engine would capture from a drafter's config.json: a table of rules, one for each engine and range of versions.

Engines differ in where they look for layer ids, in what an id means, and in what they take where there is none. All capture in
ascending order, whatever the order of the list. Sources stand in the rows.
"""

from dataclasses import dataclass

from ..read.tensors import at

Path = tuple[str, ...]
KEY = "eagle_aux_hidden_state_layer_ids"
TOP, NESTED = (KEY,), ("eagle_config", KEY)


@dataclass(frozen=True)
class Rule:
    """`places`: (path in config.json, added to each id to give n of r_n), the first that is there is read. `add_if_first_is_1`:
    1 is added where the first id is 1. A config without any gives r_2, r_(L//2), r_(L-3) in all of them.
    """

    engine: str
    versions: str
    places: tuple[tuple[Path, int], ...]
    source: str
    add_if_first_is_1: bool = False
    only: str = ""  # for targets of this kind only


RULES = (
    Rule("SGLang", "before 2026-05-16", ((NESTED, 1),), "sgl-project/sglang#25454"),
    Rule("SGLang", "since 2026-05-16", ((NESTED, 0),), "sgl-project/sglang#25454", add_if_first_is_1=True),
    Rule("SGLang", "since 2026-07-27, gpt-oss targets", ((NESTED, 0),), "sgl-project/sglang#32334", only="gpt_oss"),
    Rule("vLLM", "older", ((TOP, 0), (("dflash_config", "target_layer_ids"), 0)), "vllm-project/vllm#50170"),
    Rule("vLLM", "0.32, model runner V1", ((TOP, 0), (("dflash_config", "target_layer_ids"), 1), (NESTED, 0)),
         "vLLM 0.32.0 `v1/worker/gpu_model_runner.py`"),
    Rule("vLLM", "model runner V2",
         ((TOP, 0), (("dflash_config", "target_layer_ids"), 1), (("dspark_target_layer_ids",), 1), (("target_layer_ids",), 1),
          (("dflash_config", "layer_ids"), 0), (("eagle_config", "layer_ids"), 0)),
         "vllm-project/vllm `eagle3_utils.py` at 0cfdd2e"),
    Rule("TensorRT-LLM", "config.json not read: eagle3_layers_to_capture or its default", (),
         "NVIDIA/TensorRT-LLM `llmapi/llm_args.py`"),
)  # fmt: skip


@dataclass(frozen=True)
class Captured:
    """What one rule makes of one config: the streams, and from where. `streams` is None where it takes a default of unknown L."""

    rule: Rule
    streams: tuple[int, ...] | None
    read_from: str


def captured(config: dict, n_layers: int | None) -> list[Captured]:
    """Each rule's streams for this config.json, ascending and each once; `n_layers` of the target, None where it is not known."""
    kind = str(config.get("model_type"))
    found = []
    for rule in (rule for rule in RULES if rule.only in ("", kind)):
        place, ids, add = next(((p, ids, add) for p, add in rule.places if (ids := _ids(config, p))), (None, None, 0))
        if ids is None:
            L = n_layers
            found.append(Captured(rule, tuple(sorted({2, L // 2, L - 3})) if L else None, "no ids that it reads: its default"))
            continue
        add += bool(rule.add_if_first_is_1 and ids[0] == 1)
        streams = tuple(sorted({n + add for n in ids if n + add >= 0}))  # an engine has nothing to capture below r_0
        found.append(Captured(rule, streams, f"{'.'.join(place)} {ids}"))
    return found


def _ids(config: dict, path: Path) -> list[int] | None:
    found = at(config, path)
    good = isinstance(found, list) and found and all(isinstance(i, int) and not isinstance(i, bool) for i in found)
    return found if good else None
