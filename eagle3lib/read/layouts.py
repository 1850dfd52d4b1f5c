"""Who wrote a checkpoint, and what its files do not say but its producer did: one row for each layout.

Tensors decide what is run; `architectures` only tells producers apart that write the same tensors. A row settles what the file
leaves open by what the producer's own code does; what differs between versions of one producer stays open (`opens`).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

Config = dict
Names = Collection[str]  # of the tensors, as they are in the file


@dataclass(frozen=True)
class Layout:
    """One producer's way of writing a drafter."""

    name: str
    recognise: Callable[[Config, Names], bool]
    source: str
    base_10000: frozenset[str] = frozenset()  # rope kinds for which training ignored the configured base
    mla_base_10000: frozenset[str] = frozenset()  # the same for latent attention
    mla_eps: float | None = None  # of the inner norms, whatever the config says
    mla_plain_scale: bool = False  # scores are not multiplied by YaRN's gain squared
    opens: tuple[str, ...] = ()  # keys of OPEN


# What files of a layout cannot say: question, and the default taken.
OPEN = {
    "double norm": "since 2025-12-18 training passes the state through input_layernorm before hidden_norm; files do not say "
    "which version wrote them: hidden_norm alone is taken, as engines do (NVIDIA/Model-Optimizer `modeling_eagle.py`)",
    "rope base": "versions before 2025-11 trained with base 10000 whatever rope_theta says (sgl-project/SpecForge#265): the "
    "configured base is taken",
    "injected yarn": "the export adds yarn scaling that training did not use: it is run as the file says "
    "(Model-Optimizer `hf_spec_export.py`)",
    "norm_output": "files with norm_output true from before 2026-09-15 were trained with the state fed back before the norm "
    "(sgl-project/SpecForge#879): the file is taken at its word",
    "norm_before_residual": "the key is absent: false is taken, as its own class does; vLLM reads its absence as true "
    "(vLLM `speculators/algos.py`)",
    "id dialect": "layer ids that begin with neither 1 nor 2 are of either dialect: read as boundary ids, n = id",
}


def _arch(config: Config) -> str:
    found = config.get("architectures")
    return str(found[0]) if isinstance(found, list) and found else ""


def _begins(names: Names, start: str) -> bool:
    return any(name.startswith(start) for name in names)


def _ends(names: Names, end: str) -> bool:
    return any(name.endswith(end) for name in names)


def _latent(config: Config) -> bool:
    return "deepseek" in _arch(config).lower()


def _modelopt(config: Config) -> bool:
    """Keys that Model-Optimizer alone writes into eagle_config."""
    nest = config.get("eagle_config")
    return isinstance(nest, dict) and "use_last_layernorm" in nest


LAYOUTS = (
    Layout("speculators P-EAGLE", lambda c, n: c.get("speculators_model_type") == "peagle",
           "speculators `models/peagle/core.py`"),
    Layout("speculators converted", lambda c, n: c.get("speculators_model_type") == "eagle3" and c.get("model_type") == "eagle3",
           "speculators `convert/eagle/eagle3_converter.py`", opens=("norm_before_residual", "rope base")),
    Layout("speculators", lambda c, n: "speculators_model_type" in c, "speculators `models/eagle3/config.py`",
           opens=("norm_before_residual",)),
    Layout("SpecForge P-EAGLE", lambda c, n: _arch(c) == "PEagleDraftModel", "SpecForge `modeling/draft/peagle.py`"),
    Layout("DeepSpec", lambda c, n: "target_layer_ids" in c, "DeepSpec `modeling/eagle3/qwen3/modeling.py`"),
    Layout("NeMo Automodel", lambda c, n: _arch(c) == "LlamaEagle3DraftModel" or _begins(n, "model.fc."),
           "NeMo Automodel `speculative/eagle/draft_llama.py`, `draft_deepseek.py`", mla_plain_scale=True),
    Layout("AngelSlim", lambda c, n: _arch(c).endswith(("Eagle3LlamaForCausalLM", "LlamaForCausalLMEEagle3")),
           "AngelSlim `train/models/draft/llama_eagle3.py`", base_10000=frozenset({"default"})),
    Layout("TorchSpec", lambda c, n: "_torchspec_version" in c or (_begins(n, "midlayer.") and _latent(c) and not _modelopt(c)),
           "TorchSpec `llama3_eagle.py`, `deepseek_eagle.py`", base_10000=frozenset({"linear", "dynamic", "mrope"}),
           mla_base_10000=frozenset({"linear", "dynamic", "yarn"})),
    Layout("ModelOpt", lambda c, n: _modelopt(c) or _latent(c) or (_arch(c) != "LlamaForCausalLM" and not _ends(n, "t2d")),
           "Model-Optimizer `plugins/hf_spec_export.py`", mla_eps=1e-6, opens=("double norm", "injected yarn")),
    Layout("SafeAILab", lambda c, n: _arch(c) == "LlamaForCausalLM", "SafeAILab/EAGLE `traineagle3/cnets.py`",
           base_10000=frozenset({"default", "linear", "dynamic"})),
    Layout("SpecForge", lambda c, n: True, "SpecForge `modeling/draft/llama3_eagle.py`", opens=("rope base", "norm_output")),
)  # fmt: skip


def layout_of(config: Config, names: Names) -> Layout:
    """The first row that fits; what nobody else signs is read as SpecForge's, the commonest."""
    return next(layout for layout in LAYOUTS if layout.recognise(config, names))
