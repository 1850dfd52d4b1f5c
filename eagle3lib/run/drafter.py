"""The manual forward of an EAGLE-3 drafter, read from top to bottom.

Rows. `x_t` is the token at position t and `g_t` the target's streams joined there. Row t is the pair
(g_t, embedding of x_{t+1}) and predicts x_{t+2}: the drafter is always one token ahead of the state it is given.
Steps. Step 0 takes `g_t` through `fc`; step k takes the drafter's own state of step k-1, with the embedding of the next
token. Row t sees the step-0 keys of rows 0..t (made from the target's states) and its own row's keys of steps 1..k.
Sources: EAGLE-3 (arXiv 2503.01840); SafeAILab/EAGLE `cnets.py`; speculators `models/eagle3/core.py`; vLLM `llama_eagle3.py`.
"""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from ..read.checkpoint import Checkpoint
from ..read.errors import BrokenError, InputError
from ..read.recipe import Recipe
from .attention import Pair, attend, pairs_apart, rms_norm, rotate
from .device import block_size, device_of, dtype_of, enough_memory


@dataclass(frozen=True)
class Memory:
    """What the rows of a pass attend to, for each layer."""

    context: tuple[Pair, ...] = ()  # step-0 keys and values of rows 0..S-1, each [S, n_kv_heads, head_dim]
    own: tuple[tuple[Pair, ...], ...] = ()  # for each later step and layer, each [T, n_kv_heads, head_dim]
    first: Tensor | None = None  # [T] where each row's text begins in the context; None: all rows are of one text

    def rows(self, keep: Tensor | slice) -> "Memory":
        """The same context, with the own keys of some rows only."""
        own = tuple(tuple((k[keep], v[keep]) for k, v in step) for step in self.own)
        return Memory(self.context, own, None if self.first is None else self.first[keep])

    def fresh(self) -> "Memory":
        """Own keys forgotten: what an engine does after each verification."""
        return Memory(self.context)


@dataclass(frozen=True)
class Step:
    """What one pass returns."""

    normed: Tensor  # [T, H] what the head sees
    feed: Tensor  # [T, H] the state that the next step takes
    memory: Memory

    def rows(self, keep: Tensor | slice) -> "Step":
        """The same for some rows only; the context they attend to stays whole."""
        return Step(self.normed[keep], self.feed[keep], self.memory.rows(keep))


@dataclass(frozen=True)
class Wiring:
    """What stands around the layers, as EAGLE-3 has it. Other values are for hypotheses: what some trainer or engine did."""

    token: int = 1  # row t embeds x_{t + token}
    later: int = 0  # added to the position of every step after the first
    stale: bool = False  # a step feeds on what the first one was fed, not on its result
    without: str = ""  # a norm that is left out: "input_layernorm", "hidden_norm" or "norm"
    double: bool = False  # the state goes through input_layernorm before hidden_norm (Model-Optimizer since 2025-12-18)


FINITE = 2**24  # numbers tested at once


class Drafter:
    """A checkpoint's forward, by hand. `weights` are the checkpoint's tensors under its own names, in `dtype` on `device`.

    `recipe` replaces the checkpoint's own: with another `streams`, another rope, another flag.
    Exactness (the same argmax as the reference, the same accepted drafts as live decoding) is meant for float32. `dtype` may be
    a name. Raises InputError for a weight that is no number, a recipe that the tensors do not allow, an unknown dtype.
    """

    def __init__(
        self, ckpt: Checkpoint, recipe: Recipe | None = None, device: str = "cpu", dtype: torch.dtype | str = torch.float32
    ):
        self.recipe = recipe or ckpt.recipe
        self.masked: Tensor | None = None  # [1, H] P-EAGLE: the state that stands for one not yet there
        self.device, self.dtype = device_of(device), dtype_of(dtype)
        with enough_memory(f"loading the drafter's weights onto {self.device} in {self.dtype}", "a device with more free memory"):
            self.weights = {name: _finite(name, tensor.to(self.device, self.dtype)) for name, tensor in ckpt.weights()}
            self.head = _finite("lm_head.weight", ckpt.head().to(self.device, self.dtype))  # [Vd, H]
        self.block = block_size(self.device)
        self._check_recipe()
        self.embedding = ckpt.embedding
        self.target_ids = ckpt.target_ids.to(self.device)  # [Vd] the target's id of each draft id
        self.inv_freq = torch.tensor(self.recipe.rope.inv_freq, device=self.device, dtype=torch.float32)
        self.wiring = Wiring()
        if self.recipe.mask_token is not None:
            self.masked = self.fuse(self.weights.pop("mask_hidden").view(1, -1))

    def _check_recipe(self) -> None:
        """Raises InputError for a norm, or parallel drafting, that the recipe wants and the checkpoint lacks."""
        if self.recipe.mask_token is not None and self.masked is None and "mask_hidden" not in self.weights:
            raise InputError("recipe: asks for parallel drafting (mask_token), but the checkpoint has no mask_hidden")
        for wanted, name in ((self.recipe.norm_before_fc, "input_norm.weight"), (self.recipe.fc_norm, "fc_norm.0.weight")):
            if wanted and name not in self.weights:
                raise InputError(f"recipe: asks for a norm before fc, but the checkpoint has no {name}: leave that flag false")

    def _check_positions(self, rows: Tensor, step: int) -> None:
        """Raises InputError for a position whose angles the recipe does not know."""
        upto = self.recipe.rope.upto
        if upto and len(rows) and int(rows.max()) + step >= upto:
            raise InputError(
                f"position {int(rows.max()) + step}: rope is {self.recipe.rope.about}, and beyond it this library does not go: "
                "give shorter samples"
            )

    def with_recipe(self, recipe: Recipe) -> "Drafter":
        """The same weights, not copied, under another recipe."""
        other = copy.copy(self)
        other.recipe = recipe
        other._check_recipe()
        other.inv_freq = torch.tensor(recipe.rope.inv_freq, device=self.device, dtype=torch.float32)
        return other

    def but(self, **parts) -> "Drafter":
        """The same drafter with other `weights`, `head`, `embedding`, `target_ids` or `wiring`; nothing else is copied."""
        other = copy.copy(self)
        for name, part in parts.items():
            assert hasattr(self, name), name
            setattr(other, name, part)
        return other

    def fuse(self, g: Float[Tensor, "T joined"], trace: dict | None = None) -> Float[Tensor, "T H"]:
        """The target's joined streams to the drafter's width: the optional norms of the streams, then `fc`. Step 0 only."""
        T, joined = g.shape
        r = self.recipe
        if r.norm_before_fc:
            g = self._norm("input_norm.weight", g, trace)
        if r.fc_norm:
            chunks = g.view(T, r.n_streams, joined // r.n_streams).unbind(1)  # n_streams of [T, Ht]
            g = torch.cat([self._norm(f"fc_norm.{i}.weight", c, trace) for i, c in enumerate(chunks)], dim=-1)
        return _note(trace, "fc", self._linear("fc", g))  # [T, joined] x [joined, H] -> [T, H]

    def forward(
        self,
        hidden: Float[Tensor, "T H"],
        ids: Int[Tensor, " T"],
        rows: Int[Tensor, " T"],
        memory: Memory,
        step: int = 0,
        trace: dict | None = None,
    ) -> Step:
        """One pass over T rows: row `rows[t]` takes state `hidden[t]` and the embedding of token `ids[t]`.

        At step 0 `hidden` is `fuse(g)`, the rows are the ones that follow those in `memory.context`, and their keys are
        added to it. At a later step `hidden` is the `feed` of the step before, and each row's key goes to its own. Rows of
        several texts lie one text after the other, and `memory.first` says where each row's text begins.
        `trace`, a dict, receives every intermediate tensor by name.
        """
        T, H = hidden.shape
        if step and self.recipe.mask_token is not None:  # P-EAGLE: nothing is known of the tokens to come
            ids = torch.full_like(ids, self.recipe.mask_token)
        embedded = _note(trace, "embedding", self.embed(ids))  # [T, H]
        sees = (rows, memory.first)
        place = rows if memory.first is None else rows - memory.first  # [T] in its own text
        self._check_positions(place, step)
        position = (place + step + (self.wiring.later if step else 0))[:, None] * self.inv_freq  # [T, half] angles
        gain = self.recipe.rope.gain
        turn = ((position.cos() * gain).to(self.dtype), (position.sin() * gain).to(self.dtype))  # [T, half] each
        fed, context, own = hidden, [], []
        for i in range(self.recipe.n_layers):
            past = memory.context[i] if memory.context else None
            mine = [of_step[i] for of_step in memory.own]
            hidden, past, mine = self._layer(i, hidden, embedded, sees, turn, past, mine, step, trace)
            context.append(past)
            own.append(mine)
        normed = self._norm("norm.weight", hidden, trace)  # [T, H]
        feed = fed if self.wiring.stale else normed if self.recipe.norm_output else hidden
        if self.masked is not None:
            feed = self.masked.expand(T, H)
        memory = Memory(tuple(context), tuple(zip(*own, strict=True)), memory.first)
        return Step(normed, _note(trace, "feed", feed), memory)

    def _layer(self, i, hidden, embedded, sees, turn, past, own, step, trace):
        """Decoder layer i. The first is fused: its q, k, v read [normed embedding, normed state], 2H wide; later ones are plain
        but in DeepSpec's drafters.
        """
        T, H = hidden.shape
        name = f"layers.{i}."
        if i in self.recipe.fused_layers:
            left = self._norm(name + "input_layernorm.weight", embedded, trace)
            inner = self._norm(name + "input_layernorm.weight", hidden, None) if self.wiring.double else hidden
            right = self._norm(name + "hidden_norm.weight", inner, trace)
            x = _note(trace, name + "fused", torch.cat([left, right], dim=-1))  # [T, 2H]
            residual = right if self.recipe.norm_before_residual else hidden
        else:
            x, residual = self._norm(name + "input_layernorm.weight", hidden, trace), hidden  # [T, H]
        mixed, past, own = self._attention(name + "self_attn.", x, sees, turn, past, own, step, trace)
        hidden = _note(trace, name + "after_attention", residual + mixed)  # [T, H]
        x = self._norm(name + "post_attention_layernorm.weight", hidden, trace)
        gate, up = self._linear(name + "mlp.gate_proj", x), self._linear(name + "mlp.up_proj", x)  # [T, I] each
        gated = _note(trace, name + "mlp.gated", functional.silu(gate) * up)  # [T, I]
        hidden = hidden + self._linear(name + "mlp.down_proj", gated)  # [T, I] x [I, H] -> [T, H]
        return _note(trace, name + "output", hidden), past, own

    def _attention(self, name, x, sees, turn, past, own, step, trace):
        """Attention with rotary positions. Returns [T, H], the context's keys and this row's own keys."""
        T = x.shape[0]
        heads = self._latent_heads if self.recipe.mla else self._grouped_heads
        q, k, v = heads(name, x, turn, trace)  # [T, n_heads, D], [T, n_kv_heads, D], [T, n_kv_heads, Dv]
        if step == 0:
            past = (k, v) if past is None else (torch.cat([past[0], k]), torch.cat([past[1], v]))  # [S + T, n_kv_heads, D]
        else:
            own = [*own, (k, v)]
        scale = self.recipe.mla.scale if self.recipe.mla else 1.0
        mixed = attend(q, sees[0], past, own, self.block, scale, sees[1]).reshape(T, -1)  # [T, n_heads * Dv]
        return _note(trace, name + "o", self._linear(name + "o_proj", mixed)), past, own  # [T, H]

    def _grouped_heads(self, name, x, turn, trace):
        """Grouped-query attention: several query heads share a key head."""
        T, r = x.shape[0], self.recipe
        q = self._linear(name + "q_proj", x).view(T, r.n_heads, r.head_dim)  # [T, n_heads, D]
        k = self._linear(name + "k_proj", x).view(T, r.n_kv_heads, r.head_dim)  # [T, n_kv_heads, D]
        v = self._linear(name + "v_proj", x).view(T, r.n_kv_heads, r.head_dim)  # [T, n_kv_heads, D]
        if name + "q_norm.weight" in self.weights:  # Qwen3 layers: a norm over each head, before the rotation
            q = self._norm(name + "q_norm.weight", q, trace)
            k = self._norm(name + "k_norm.weight", k, trace)
        return _note(trace, name + "q", rotate(q, *turn)), _note(trace, name + "k", rotate(k, *turn)), v

    def _latent_heads(self, name, x, turn, trace):
        """Latent attention (`Mla`), keys and values written out for each head: one rotary key is shared by all."""
        T, r, m = x.shape[0], self.recipe, self.recipe.mla
        if m.q_rank:
            narrow = self._norm(name + "q_a_layernorm.weight", self._linear(name + "q_a_proj", x), trace, m.eps)  # [T, q_rank]
            q = self._linear(name + "q_b_proj", narrow).view(T, r.n_heads, r.head_dim)  # [T, n_heads, nope + rope]
        else:
            q = self._linear(name + "q_proj", x).view(T, r.n_heads, r.head_dim)  # [T, n_heads, nope + rope]
        narrow, shared = self._linear(name + "kv_a_proj_with_mqa", x).split([m.kv_rank, m.rope], dim=-1)
        narrow = self._norm(name + "kv_a_layernorm.weight", narrow, trace, m.eps)  # [T, kv_rank]
        k, v = (
            self._linear(name + "kv_b_proj", narrow).view(T, r.n_heads, -1).split([m.nope, m.v], dim=-1)
        )  # [T, n_heads, nope | v]
        shared = rotate(pairs_apart(shared[:, None]), *turn).expand(T, r.n_heads, m.rope)  # [T, 1, rope] -> [T, n_heads, rope]
        turned = rotate(pairs_apart(q[..., m.nope :]), *turn)  # [T, n_heads, rope]
        q = torch.cat([q[..., : m.nope], turned], dim=-1)  # [T, n_heads, nope + rope]
        k = torch.cat([k, shared], dim=-1)  # [T, n_heads, nope + rope]
        return _note(trace, name + "q", q), _note(trace, name + "k", k), v

    def logits(self, normed: Float[Tensor, "T H"]) -> Float[Tensor, "T Vd"]:
        """The head: a score for each draft id."""
        return normed @ self.head.T  # [T, H] x [H, Vd] -> [T, Vd]

    def predict(self, normed: Float[Tensor, "T H"]) -> Int[Tensor, " T"]:
        """The most likely next token of each row, as the target's id: `target_ids[argmax(logits)]`."""
        parts = normed.split(self._head_block())
        best = [self.logits(part).max(-1).indices for part in parts]  # `argmax` takes six times as long in bfloat16
        return self.target_ids[torch.cat(best)]

    def predict_beside(
        self, normed: Float[Tensor, "T H"], truth: Int[Tensor, " T"], temperature: float = 1.0
    ) -> tuple[Int[Tensor, " T"], Float[Tensor, " T"]]:
        """`predict`, and the log-probability that each row gives to its true token, at a temperature; nan where no draft id
        stands for that.
        """
        draft_id = torch.full((self.recipe.vocab_size,), -1, device=self.device)
        draft_id[self.target_ids] = torch.arange(len(self.target_ids), device=self.device)
        best, log_p = [], []
        for part, tokens in zip(normed.split(self._head_block()), truth.split(self._head_block()), strict=True):
            logits, ids = self.logits(part).float() / temperature, draft_id[tokens]  # [part, Vd], [part]
            best.append(logits.max(-1).indices)
            true = logits.gather(1, ids.clamp(min=0)[:, None])[:, 0]  # [part]
            log_p.append(torch.where(ids >= 0, true - logits.logsumexp(-1), torch.nan))
        return self.target_ids[torch.cat(best)], torch.cat(log_p)

    def _head_block(self) -> int:
        """Rows whose logits are held at once."""
        return max(1, self.block // len(self.head))

    def embed(self, ids: Int[Tensor, " T"]) -> Float[Tensor, "T H"]:
        """Embedding rows of tokens, read from the checkpoint's table or, where it has none, from its target's."""
        return self.embedding.rows(ids).to(self.device, self.dtype)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def _norm(self, name: str, x: Tensor, trace: dict | None, eps: float | None = None) -> Tensor:
        if self.wiring.without and name.split(".")[-2] == self.wiring.without:
            return x
        return _note(trace, name.removesuffix(".weight"), rms_norm(x, self.weights[name], eps or self.recipe.eps))


def check_finite(ckpt: Checkpoint) -> None:
    """Read the weights one by one. Raises BrokenError for one that is no number."""
    for name, tensor in ckpt.weights():
        _finite(name, tensor)
    if "lm_head.weight" in ckpt:
        _finite("lm_head.weight", ckpt.head())


def _finite(name: str, weight: Tensor) -> Tensor:
    parts = weight.reshape(-1).split(FINITE)  # in parts: the test itself takes as much memory as what it tests
    if not all(bool(torch.isfinite(part).all()) for part in parts):
        raise BrokenError(f"checkpoint: tensor {name} holds NaN or infinite values: it was saved broken")
    return weight


def _note(trace: dict | None, name: str, tensor: Tensor) -> Tensor:
    """Keep `tensor` under `name` when somebody traces. Returns it."""
    if trace is not None:
        trace[name] = tensor
    return tensor
