"""What the tensors say: the vocabulary map, the head, whose each tensor is, and which of them an engine passes over."""

from collections.abc import Iterator
from types import SimpleNamespace

import pandas as pd
import torch

from ..read.checkpoint import Checkpoint
from .audit_config import Rule, fired
from .finding import Finding

HEAD = 256  # rows of the head held against the target's


# Forms of d2t that lead to different tokens of the vocabulary, so are not refused, and that no training makes.
MAPS = (
    Rule("warning", lambda f: f.whole and not f.identity,
         "the draft vocabulary is the target's, but d2t is no identity: engines differ in whether they use it then", "map",
         where="d2t"),
    Rule("warning", lambda f: not f.whole and f.identity,
         "d2t is all zeros: the draft vocabulary would be the first {r.draft_vocab_size:,} of {r.vocab_size:,} tokens", "map",
         "rebuild d2t from the token counts of training", where="d2t", evidence=lambda f: f.told),
    Rule("fault", lambda f: not f.whole and f.least >= 1,
         "d2t rises at every entry, as ids do and offsets do not: it holds ids where offsets belong (target minus draft id)",
         "map", "d2t[i] = id[i] - i", where="d2t", evidence=lambda f: f.told),
    Rule("warning", lambda f: not f.whole and f.least < 0,
         "the tokens of d2t are not ascending, which no trainer writes: the rows of lm_head may belong to others", "map",
         settle="the probe: captures", where="d2t", evidence=lambda f: f.told),
    Rule("fault", lambda f: not f.whole and "d2t" not in f.names,
         "there is t2d and no d2t: engines, which read d2t only, map draft ids to the first tokens, and accept next to nothing",
         "map", "write d2t: id minus place, for each true place of t2d", where="d2t"),
    Rule("note", lambda f: not f.whole and "d2t" in f.names and "t2d" not in f.names,
         "there is no t2d to hold d2t against; engines do not need it", "", where="d2t"),
)  # fmt: skip


def of_the_map(ckpt: Checkpoint) -> Iterator[Finding]:
    r, ids = ckpt.recipe, ckpt.target_ids
    offsets = ids - torch.arange(len(ids))
    told = {"draft ids": len(ids), "target ids": r.vocab_size, "last offset": int(offsets[-1])}
    least = int(offsets.diff().min()) if len(ids) > 1 else 0  # the smallest step from one offset to the next
    whole, identity = r.draft_vocab_size == r.vocab_size, not bool(offsets.any())
    return fired(MAPS, SimpleNamespace(r=r, names=ckpt.names, told=told, least=least, whole=whole, identity=identity))


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
            change = "serve it with vLLM's class for it"
            yield Finding("warning", "tensors", said, {"first": names[0]}, change=change, name="weights")


def of_the_folder(ckpt: Checkpoint) -> Iterator[Finding]:
    """Weights in two forms, of which only one is read."""
    read = {header.file.name for header in ckpt.files.headers.values()}
    other = [file.name for pattern in ("*.safetensors", "pytorch_model*.bin") for file in sorted(ckpt.path.glob(pattern))]
    other = [name for name in other if name not in read and not name.startswith("adapter_")]
    if other:
        what = f"{', '.join(sorted(read))} is read; {', '.join(other[:3])} lies beside it unread (SafeAILab reads .bin first)"
        yield Finding("warning", "folder", what, change="keep one of them", name="weights")


def of_the_head(ckpt: Checkpoint) -> Iterator[Finding]:
    """Whose rows a head holds that is the target's: d2t's tokens', or others' (TorchSpec `convert_to_hf.py`)."""
    r, target = ckpt.recipe, ckpt.target
    if "lm_head.weight" not in ckpt:
        if r.draft_vocab_size < r.vocab_size:
            what = "no lm_head, and a smaller vocabulary than the target's: engines that borrow its whole head accept nothing"
            yield Finding("warning", "tensors", what, change="write lm_head: the target's rows of d2t's tokens", name="head")
        return
    if target is None or target.hidden_size != r.hidden_size:
        return
    places, rows = ckpt.some_rows("lm_head.weight", HEAD)
    ids, last = ckpt.target_ids[places], target.head_shape[0] - 1
    claims = {"of d2t's tokens": ids, "of the tokens after d2t's": ids + 1, "of the tokens before d2t's": ids - 1,
              "of the first tokens, d2t unused": places, "of d2t's offsets taken as ids": ids - places}  # fmt: skip
    for words, claimed in claims.items():
        theirs = target.head_rows(claimed.clamp(0, last)).float()
        if float(((rows.float() - theirs).norm(dim=1) < 0.02 * theirs.norm(dim=1)).float().mean()) > 0.9:
            if words != "of d2t's tokens":
                what = f"the head's rows are the target's, {words}: every guess is taken for another token"
                yield Finding("fault", "tensors", what, change="gather the target's head by i + d2t[i]", name="map")
            return


def of_tensors(ckpt: Checkpoint, tensors: pd.DataFrame) -> Iterator[Finding]:
    """Whose each tensor is: never trained, the target's, or its own beside the target's."""
    new = tensors[tensors.provenance.str.startswith("untouched")]
    matrices = [name for name in new.index if len(ckpt.files.headers[ckpt.names[name]].shape) > 1]
    if matrices:
        what = f"{len(matrices)} matrices look as their module was made, never trained: {', '.join(matrices[:3])}"
        told = dict(new.provenance[matrices[:3]])
        yield Finding("warning", "tensors", what, told, settle="the probe: captures", name="weights")
    norms = [name for name in tensors.index if name.startswith("layers.") and name.endswith("norm.weight")]
    broken = [name for name in tensors.index if tensors.provenance[name].startswith("broken")]
    if broken:
        what = f"{len(broken)} tensors hold NaN or infinite numbers: {', '.join(broken[:3])}"
        yield Finding("fault", "tensors", what, change="export it anew: it was saved broken", name="weights")
    zeros = [name for name in tensors.index if name.endswith("norm.weight") and tensors.provenance[name].endswith("all zeros")]
    if zeros:
        what = f"{', '.join(zeros[:3])}: all zeros, a norm that lets nothing through: never filled, or saved broken"
        yield Finding("fault", "tensors", what, {"norms": len(zeros)}, change="export it anew", name="weights")
    if norms and all(tensors.provenance[name].endswith("all ones") for name in norms):
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
