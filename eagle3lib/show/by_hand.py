"""The drafter's forward written a second time, as plainly as it can be, and the comparison of two forwards by tensor.

`ByHand` has no cache and no blocks and uses nothing of `run.drafter`, so that the two can be held against each other. The
lesson (notebook 03) walks through it. Formula: EAGLE-3 (arXiv 2503.01840); SafeAILab/EAGLE `cnets.py`; vLLM `llama_eagle3.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from ..read.recipe import Recipe
from ..run.drafter import Drafter, Memory

ROWS = 512  # of a long sample the first so many rows are followed: no row looks ahead, so they are exact
# Two ways to sum the same numbers differ by rounding; a wrong norm, flag or position moves a row by a hundredth or more.
LIMITS = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class ByHand:
    """A drafter's tensors and the operations that its forward is made of, a few lines each."""

    def __init__(self, ckpt: Checkpoint, recipe: Recipe | None = None, device: str = "cpu", dtype: torch.dtype = torch.float32):
        self.ckpt, self.recipe = ckpt, recipe or ckpt.recipe
        if self.recipe.mla or self.recipe.mask_token is not None or self.recipe.fused_layers != (0,):
            raise InputError(
                f"{ckpt.path.name}: latent attention, parallel drafts or several fused layers, which the lesson does not walk "
                "through: it shows drafters of grouped-query attention with one fused layer; all other notebooks run yours"
            )
        self.device, self.dtype = device, dtype

    def w(self, name: str) -> Tensor:
        """Tensor `name` of the checkpoint, read from its file now."""
        return self.ckpt.tensor(name).to(self.device, self.dtype)

    def linear(self, x: Tensor, name: str) -> Tensor:
        """`x @ W.T`, and a bias where the checkpoint has one."""
        y = x @ self.w(name + ".weight").T
        return y + self.w(name + ".bias") if name + ".bias" in self.ckpt else y

    def norm(self, x: Tensor, name: str) -> Tensor:
        """RMSNorm: each row over the root of its mean square, times a trained weight (arXiv 1910.07467)."""
        wide = x.float()
        return self.w(name + ".weight") * (wide / (wide.pow(2).mean(-1, keepdim=True) + self.recipe.eps).sqrt()).to(x.dtype)

    def embed(self, ids: Int[Tensor, " R"]) -> Float[Tensor, "R H"]:
        """Embedding rows, of the checkpoint's table or of its target's."""
        return self.ckpt.embedding.rows(ids).to(self.device, self.dtype)

    def before_fc(self, g: Float[Tensor, "R joined"]) -> Float[Tensor, "R joined"]:
        """What some drafters do before `fc`: one norm over the joined streams, or one for each. Most do nothing."""
        if self.recipe.norm_before_fc:
            g = self.norm(g, "input_norm")
        if self.recipe.fc_norm:
            parts = g.chunk(self.recipe.n_streams, dim=-1)
            g = torch.cat([self.norm(part, f"fc_norm.{i}") for i, part in enumerate(parts)], dim=-1)
        return g

    def heads(self, x: Float[Tensor, "R W"], name: str) -> Float[Tensor, "R heads D"]:
        """Queries, keys or values by head. Qwen3 layers norm each head of queries and keys."""
        y = self.linear(x, name + "_proj").unflatten(-1, (-1, self.recipe.head_dim))
        return self.norm(y, name + "_norm") if name + "_norm.weight" in self.ckpt else y

    def turn(self, x: Float[Tensor, "R heads D"]) -> Float[Tensor, "R heads D"]:
        """Rotary positions 0..R-1: channel i and channel i + D/2 of each head turn together by position * inv_freq[i]."""
        rope = self.recipe.rope
        angles = torch.arange(len(x))[:, None] * torch.tensor(rope.inv_freq)  # [R, D/2]
        cos, sin = ((f(angles) * rope.gain).to(x)[:, None] for f in (torch.cos, torch.sin))  # [R, 1, D/2]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def attention(self, q: Float[Tensor, "R heads D"], k: Float[Tensor, "R kv D"]) -> Float[Tensor, "heads R R"]:
        """Softmax weights of each row over itself and the rows before it. Several query heads share one head of keys."""
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        scores = torch.einsum("rhd,shd->hrs", q, k) / q.shape[-1] ** 0.5
        ahead = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
        return scores.masked_fill(ahead, float("-inf")).float().softmax(-1).to(q.dtype)

    def layer(self, i: int, x: Float[Tensor, "R W"], residual: Float[Tensor, "R H"]) -> dict[str, Tensor]:
        """Decoder layer i on its normed input x (2H wide in layer 0), by the names of `Drafter`'s trace."""
        name = f"layers.{i}."
        q, k = (self.turn(self.heads(x, name + f"self_attn.{letter}")) for letter in "qk")
        v = self.heads(x, name + "self_attn.v")
        v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
        mixed = torch.einsum("hrs,shd->rhd", self.attention(q, k), v).flatten(1)  # [R, heads * D]
        o = self.linear(mixed, name + "self_attn.o_proj")
        h = residual + o
        normed = self.norm(h, name + "post_attention_layernorm")
        gated = functional.silu(self.linear(normed, name + "mlp.gate_proj")) * self.linear(normed, name + "mlp.up_proj")
        out = h + self.linear(gated, name + "mlp.down_proj")
        found = {"self_attn.q": q, "self_attn.k": k, "self_attn.o": o, "after_attention": h}
        found |= {"post_attention_layernorm": normed, "mlp.gated": gated, "output": out}
        return {name + key: tensor for key, tensor in found.items()}

    def later_layer(self, i: int, h: Float[Tensor, "R H"]) -> dict[str, Tensor]:
        """Layer i > 0: an ordinary one, H wide; it does not see the embedding again."""
        return self.layer(i, self.norm(h, f"layers.{i}.input_layernorm"), h)

    def one_pass(self, h: Float[Tensor, "R H"], tokens: Int[Tensor, " R"]) -> dict[str, Tensor]:
        """Rows 0..R-1, each a state and the token beside it, to the final norm; every tensor by its name in the trace."""
        embedded = self.embed(tokens)
        left, right = self.norm(embedded, "layers.0.input_layernorm"), self.norm(h, "layers.0.hidden_norm")
        fused = torch.cat([left, right], dim=-1)
        found = {"embedding": embedded, "layers.0.input_layernorm": left, "layers.0.hidden_norm": right, "layers.0.fused": fused}
        found |= self.layer(0, fused, right if self.recipe.norm_before_residual else h)
        for i in range(1, self.recipe.n_layers):
            found |= self.later_layer(i, found[f"layers.{i - 1}.output"])
        output = found[f"layers.{self.recipe.n_layers - 1}.output"]
        normed = self.norm(output, "norm")
        return found | {"norm": normed, "feed": normed if self.recipe.norm_output else output}

    def logits(self, normed: Float[Tensor, "R H"]) -> Float[Tensor, "R Vd"]:
        """A score for each draft id."""
        return normed @ self.ckpt.head().to(self.device, self.dtype).T

    def guess(self, normed: Float[Tensor, "R H"]) -> Int[Tensor, " R"]:
        """The target's id of the best draft id."""
        return self.ckpt.target_ids[self.logits(normed).argmax(-1).cpu()]

    def draft(self, h: Float[Tensor, "S H"], tokens: Int[Tensor, " S"], steps: int) -> Int[Tensor, " K"]:
        """Draft `steps` tokens after the last row; after each, the row's own state and its own guess become one row more."""
        for _ in range(steps):
            found = self.one_pass(h, tokens)
            h = torch.cat([h, found["feed"][-1:]])
            tokens = torch.cat([tokens, self.guess(found["norm"][-1:])])
        return tokens[-steps:]


def rows_of(capture: Capture) -> Int[Tensor, " R"]:
    """The rows that the lesson follows: those whose x_{t+2} is in the text, at most 512."""
    return torch.arange(min(max(len(capture.token_ids) - 2, 0), ROWS))


def by_hand(hand: ByHand, capture: Capture, row: int, steps: int) -> dict[str, Tensor]:
    """Every tensor of one pass over the sample, and the drafts from row `row`, without the library's forward."""
    rows, ids = rows_of(capture), capture.token_ids
    g = capture.joined(hand.recipe)[rows].to(hand.device, hand.dtype)
    h = hand.before_fc(g) @ hand.w("fc.weight").T
    found = {"joined": g, "fc": h} | hand.one_pass(h, ids[rows + 1])
    found |= {"logits": hand.logits(found["norm"]), "guess": hand.guess(found["norm"])}
    return found | {"drafts": hand.draft(h[: row + 1], ids[1 : row + 2], steps)}


@torch.inference_mode()
def by_library(drafter: Drafter, capture: Capture, row: int, steps: int) -> dict[str, Tensor]:
    """The same names, from `Drafter` and its trace; the drafts with its memory of keys, where `by_hand` starts anew each step."""
    rows, ids = rows_of(capture), capture.token_ids
    g = capture.joined(drafter.recipe)[rows].to(drafter.device, drafter.dtype)
    trace = {"joined": g}
    hidden = drafter.fuse(g, trace)
    out = drafter.forward(hidden, ids[rows + 1], rows.to(drafter.device), Memory(), trace=trace)
    trace |= {"logits": drafter.logits(out.normed), "guess": drafter.predict(out.normed).cpu()}
    out, drafts = out.rows(slice(row, row + 1)), [trace["guess"][row : row + 1]]
    for step in range(1, steps):
        out = drafter.forward(out.feed, drafts[-1], rows[row : row + 1].to(drafter.device), out.memory, step)
        drafts.append(drafter.predict(out.normed).cpu())
    return trace | {"drafts": torch.cat(drafts)}


@dataclass
class Checks:
    """Comparisons of tensors by name: printed when they are made, and kept for one table."""

    quiet: bool = False
    made: list[dict] = field(default_factory=list)

    def __call__(self, mine: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> None:
        """Compare each of `mine` with the reference of its name: integers exactly, others row by row, relative to its row."""
        for name, tensor in mine.items():
            apart = difference(tensor, reference[name])
            verdict = "passed" if apart <= LIMITS.get(tensor.dtype, 0) else "DIFFERS"
            told = f"{apart:.0e}" if apart else "0"
            self.made.append({"tensor": name, "shape": list(tensor.shape), "difference": told, "verdict": verdict})
        if not self.quiet:  # one print: several may be stored apart
            made = self.made[-len(mine) :]
            print("\n".join("{verdict}: {tensor} {shape}, difference {difference}".format(**check) for check in made))

    def table(self) -> pd.DataFrame:
        """A row for each comparison. `difference`: the largest of a row, relative; for ids, the share that differs."""
        return pd.DataFrame(self.made).set_index("tensor")

    def failed(self) -> list[str]:
        """Names of those that did not pass, in order."""
        return [check["tensor"] for check in self.made if check["verdict"] != "passed"]


def difference(mine: Tensor, reference: Tensor) -> float:
    """Norm of the difference of two rows over the reference row's, the largest of all rows; share that differ for integers.

    Infinite for tensors of different shapes.
    """
    if mine.shape != reference.shape:
        return float("inf")
    if not mine.is_floating_point():
        return float((mine != reference).double().mean())
    a, b = (tensor.double().reshape(len(tensor), -1) for tensor in (mine, reference))
    return float(((a - b).norm(dim=-1) / b.norm(dim=-1).clamp_min(1e-30)).max())


def compare(mine: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> Checks:
    """Checks of every name that both have, in the order of `mine`: the first that differs is where two forwards part."""
    checks = Checks(quiet=True)
    checks({name: tensor for name, tensor in mine.items() if name in reference}, reference)
    return checks
