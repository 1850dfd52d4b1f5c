"""Tools that write each sample into a file of its own."""

import gzip
import io
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from .base import STREAMS, aux, slots

BF16 = torch.bfloat16


def speculators(folder: Path, some) -> None:
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        save_file({"hidden_states": slots(c).to(BF16), "token_ids": c.token_ids}, folder / f"hs_{i}.safetensors")


def speculators_old(folder: Path, some) -> None:
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        states = [state.to(BF16) for state in (*(c.streams[n] for n in STREAMS), c.last)]
        held = {"input_ids": c.token_ids, "hidden_states": states, "loss_mask": c.loss_mask.long()}
        torch.save(held, folder / f"data_{i}.pt")
    config = {"version": "2.0", "hidden_states": {"layer_ids": [1, 2, 3, 5]}}
    (folder / "data_config.json").write_text(json.dumps(config))
    (folder / "sample_lengths.json").write_text("{}")


def vllm_first(folder: Path, some) -> None:
    """[S, T, Ht], vLLM at 806715e."""
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        states = slots(c).transpose(0, 1).to(BF16).contiguous()
        save_file({"hidden_states": states, "token_ids": c.token_ids}, folder / f"cmpl-{i}.safetensors")


def vllm(folder: Path, some) -> None:
    """[T, S, Ht], and lock files, which stay."""
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        save_file({"hidden_states": slots(c).to(BF16), "token_ids": c.token_ids}, folder / f"cmpl-{i}.safetensors")
        (folder / f"cmpl-{i}.safetensors.lock").touch()


def padded(rows: torch.Tensor, padding: int) -> torch.Tensor:
    return torch.cat([rows, rows.new_zeros(padding, *rows.shape[1:])])


def specforge_sample(c, padding: int = 0) -> dict:
    """`padding` as where a batch of several texts was captured."""
    return {
        "input_ids": padded(c.token_ids, padding), "loss_mask": padded(c.loss_mask.long(), padding),
        "aux_hidden_state": padded(aux(c).to(BF16), padding)[None], "hidden_state": padded(c.last.to(BF16), padding)[None],
    }  # fmt: skip


def _rows(folder: Path, i: int, size: int) -> Path:
    first = size * (i // size)
    file = folder / f"rows_{first}-{first + size}" / f"data_{i}.ckpt"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def specforge(folder: Path, some) -> None:
    for i, c in enumerate(some):
        torch.save(specforge_sample(c), _rows(folder, i, 2))
    (folder / "vocab_mapping").mkdir()
    torch.save({"d2t": torch.zeros(3, dtype=torch.int64), "t2d": torch.ones(3, dtype=torch.bool)},
               folder / "vocab_mapping" / "vocab_mapping.pt")  # fmt: skip


def specforge_gz(folder: Path, some) -> None:
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        content = io.BytesIO()
        torch.save(specforge_sample(c), content)
        (folder / f"data_{i}.ckpt.gz").write_bytes(gzip.compress(content.getvalue(), 6))


def specforge_dspark(folder: Path, some) -> None:
    for i, c in enumerate(some):
        held = {"input_ids": c.token_ids, "loss_mask": c.loss_mask.long(), "hidden_states": aux(c).to(BF16)[None]}
        torch.save({**held, "target_last_hidden_states": c.last.to(BF16)[None]}, _rows(folder, i, 2))


def specforge_dflash(folder: Path, some) -> None:
    for i, c in enumerate(some):
        held = {"input_ids": c.token_ids, "loss_mask": c.loss_mask.long(), "hidden_states": aux(c).to(BF16)[None]}
        torch.save(held, _rows(folder, i, 2))


def angelslim(folder: Path, some) -> None:
    for i, c in enumerate(some):
        held = {"input_ids": c.token_ids[None], "loss_mask": c.loss_mask.long()[None], "hidden_states": aux(c).to(BF16)[None]}
        held |= {"target_hiddens": c.last.to(BF16)[None], "position_ids": None}
        torch.save(held, _rows(folder / "rank_0", i, 5000))


def safeailab(folder: Path, some) -> None:
    (folder / "0").mkdir(parents=True)
    for i, c in enumerate(some):
        held = {"input_ids": c.token_ids, "hidden_state": c.last.half(), "loss_mask": c.loss_mask.long()}
        torch.save(held, folder / "0" / f"data_{i}.ckpt")


def modelopt(folder: Path, some, **more) -> None:
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        held = {"input_ids": c.token_ids, "hidden_states": c.last.to(BF16), "aux_hidden_states": aux(c).to(BF16)}
        held |= {"loss_mask": c.loss_mask.long(), "conversation_id": f"conv{i}", **more}
        torch.save(held, folder / f"conv{i}.pt")


def torchspec(folder: Path, some) -> None:
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        held = {"hidden_states": aux(c).to(BF16), "input_ids": c.token_ids, "last_hidden_states": c.last.to(BF16)}
        torch.save(held, folder / f"sglang_run{i}.pt")


def answer(c, asked: bool = True, **meta) -> dict:
    """SGLang's answer to one request: the prompt's rows, then one for each token written but the last."""
    prompt, rows, T = int((~c.loss_mask).sum()), aux(c).to(BF16).float(), len(c.token_ids)
    ids = c.token_ids.tolist()
    told = {
        "id": "0f3c", "finish_reason": {"type": "length", "length": T - prompt}, "prompt_tokens": prompt,
        "completion_tokens": T - prompt, "cached_tokens": 0,
        "hidden_states": [rows[:prompt].tolist(), *rows[prompt : T - 1].tolist()],
    }  # fmt: skip
    beside = {"input_ids": ids[:prompt]} if asked else {}
    return {**beside, "text": " so", "output_ids": ids[prompt:], "meta_info": {**told, **meta}}


def sglang(folder: Path, some) -> None:
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        (folder / f"answer_{i}.json").write_text(json.dumps(answer(c)))
