"""Every published layout opens as what it is, all of it used or explained; every other folder is refused by its name."""

import re
from functools import cache
from pathlib import Path

import pytest
import tiny
import torch
from layouts import ropes
from layouts.files import read_back
from layouts.parts import draft_ids, target_tensors
from layouts.refused import REFUSED
from layouts.row import Layout
from layouts.runs import LAYOUTS
from layouts.write import table

import eagle3lib as e3

BY_NAME = {layout.name: layout for layout in LAYOUTS}
TABLES = ("embed_tokens.weight", "lm_head.weight")
MAPS = ("d2t", "t2d")
STEPS = 3

each = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
each_spelling = pytest.mark.parametrize("layout", [one for one in LAYOUTS if one.same_as], ids=lambda layout: layout.name)


class Bench:
    """Folders and what was made of them, each written and opened once."""

    def __init__(self, root: Path):
        self.root = root
        self.folder, self.opened, self.hits = cache(self._folder), cache(self._opened), cache(self._hits)

    def _folder(self, name: str) -> Path:
        return BY_NAME[name].write(self.root / "drafters" / name)

    def target(self, name: str) -> Path:
        folder = self.root / "targets" / name
        return folder if folder.exists() else BY_NAME[name].write_target(folder)

    def _opened(self, name: str) -> e3.Checkpoint:
        return e3.open_checkpoint(self.folder(name), target=self.target(name))

    def _hits(self, name: str) -> e3.Hits:
        layout, ckpt = BY_NAME[name], self.opened(name)
        return e3.chain_hits(e3.Drafter(ckpt), capture(layout, ckpt.recipe), STEPS, temperature=1.0)


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    return Bench(tmp_path_factory.mktemp("layouts"))


def capture(layout: Layout, recipe: e3.Recipe) -> e3.Capture:
    """Random states of the streams that the drafter takes; by position where no config names them."""
    streams = recipe.streams or tuple(f"slot{i}" for i in range(layout.w.n))
    return tiny.capture(T=60, prompt=4, streams=streams, width=layout.w.target)


# --- what is written is what the table says ---------------------------------------------------------------------------


@each
def test_written_as_described(bench, layout):
    """Read back with safetensors and torch alone: names, numbers, types."""
    found = read_back(bench.folder(layout.name))
    for name, tensor in layout.tensors().items():
        theirs = found.pop(layout.spelled(name), None)
        if theirs is None:
            assert name in MAPS and layout.change is not None, name
        elif theirs.dtype in (torch.float8_e4m3fn, torch.int8):
            scale = found.pop(layout.spelled(name) + "_scale").float()
            torch.testing.assert_close(theirs.float() * scale, tensor, rtol=0, atol=0)
        elif name not in MAPS:
            assert theirs.dtype == layout.dtype
            assert torch.equal(theirs.float(), tensor), name
        else:
            assert torch.equal(theirs.long(), tensor.long())
    assert all(name.endswith("_scale") for name in found), found.keys()  # of activations and of the key-value cache


def test_names_are_given_once():
    names = [row.name for row in (*LAYOUTS, *REFUSED)]
    assert len(set(names)) == len(names)
    assert {layout.same_as for layout in LAYOUTS} - {""} <= set(names)


def test_the_readme_has_the_table():
    readme = (Path(__file__).parent / "layouts" / "README.md").read_text()
    assert table() in readme, "write README.md's table anew: PYTHONPATH=tests python -m layouts.write --table"


@pytest.mark.parametrize(
    ("wanted", "base", "kind", "keys"),
    [
        (ropes.linear(1e6, 128, 4), 1e6, "linear", {"factor": 4.0}),
        (ropes.llama3(5e5, 128, 8), 5e5, "llama3",
         {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
        (ropes.yarn(5e4, 64, 64, 4096), 5e4, "yarn", {"factor": 64.0}),
        (ropes.yarn(1e4, 128, 40, 4096, fast=1, gain=1.0), 1e4, "yarn",
         {"factor": 40.0, "beta_fast": 1, "mscale": 0.707, "mscale_all_dim": 0.707}),
        (ropes.yarn(1.5e5, 64, 32, 4096, whole=False), 1.5e5, "yarn", {"factor": 32.0, "truncate": False}),
        (BY_NAME["rope-yarn-uneven"].expects["rope"], 1e4, "yarn", {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707}),
        (BY_NAME["speculators-yarn"].expects["rope"], 1e6, "yarn",
         {"factor": 4.0, "original_max_position_embeddings": 32768, "attention_factor": 1.25}),
    ],
)  # fmt: skip
def test_wanted_ropes_are_those_of_transformers(wanted, base, kind, keys):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    written = {"original_max_position_embeddings": 4096, "rope_type": kind, "rope_theta": base} | keys
    about = LlamaConfig(head_dim=2 * len(wanted.inv_freq), rope_parameters=written, max_position_embeddings=163840)
    theirs, gain = ROPE_INIT_FUNCTIONS[kind](about, "cpu")
    torch.testing.assert_close(torch.tensor(wanted.inv_freq), theirs, rtol=1e-5, atol=0)
    assert gain == pytest.approx(wanted.gain)


# --- what opens -------------------------------------------------------------------------------------------------------


@each
def test_opens(bench, layout):
    assert isinstance(bench.opened(layout.name), e3.Checkpoint)


@pytest.mark.parametrize("layout", [one for one in LAYOUTS if not one.needs_target], ids=lambda layout: layout.name)
def test_opens_without_a_target(bench, layout):
    """Files with their own embedding and head need nobody else's."""
    ckpt = e3.open_checkpoint(bench.folder(layout.name))
    assert ckpt.embedding.shape[1] == layout.w.H
    assert tuple(ckpt.head().shape) == (layout.w.Vd, layout.w.H)


@each
def test_producer(bench, layout):
    assert layout.producer in (None, bench.opened(layout.name).layout.name)


@each
def test_names_are_complete(bench, layout):
    """Each of the drafter's tensors is there under this library's name, from the file's own; no other is."""
    names = bench.opened(layout.name).names
    weights = {ours: layout.spelled(ours) for ours in layout.tensors() if ours not in MAPS}
    assert {ours: theirs for ours, theirs in names.items() if ours not in MAPS} == weights
    assert all(names[ours] == layout.spelled(ours) for ours in MAPS if ours in names)


@each
def test_nothing_is_left_unexplained(bench, layout):
    ckpt, held = bench.opened(layout.name), read_back(bench.folder(layout.name))
    assert set(ckpt.names.values()) | set(ckpt.ignored) == set(held)
    assert all(ckpt.ignored.values())


@each
def test_numbers(bench, layout):
    """What the layers compute with is what was written, multiplied out where it was quantised, without `fc`'s exit signals."""
    found = {name: tensor.float() for name, tensor in bench.opened(layout.name).weights()}
    wanted = {name: tensor for name, tensor in layout.tensors().items() if name not in (*MAPS, *TABLES)}
    wanted["fc.weight"] = wanted["fc.weight"][: layout.w.H]
    assert set(found) == set(wanted)
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=0, msg=name)


@each
def test_embedding_and_head(bench, layout):
    """The file's own, whatever the target's are; else the target's."""
    ckpt, held, target = bench.opened(layout.name), layout.tensors(), target_tensors(layout.w)
    ids = torch.tensor([5, 90, 5, 0])
    assert torch.equal(ckpt.embedding.rows(ids), held.get("embed_tokens.weight", target["embedding"])[ids])
    head = held["lm_head.weight"] if "lm_head.weight" in held else target["head"][draft_ids(layout.w)]
    assert torch.equal(ckpt.head().float(), head)


@each
def test_vocabulary_map(bench, layout):
    assert torch.equal(bench.opened(layout.name).target_ids, draft_ids(layout.w))


@each
def test_every_field_has_a_source(bench, layout):
    recipe = bench.opened(layout.name).recipe
    assert set(recipe.sources) == set(recipe.__dataclass_fields__) - {"sources"}
    assert all(recipe.sources.values())


@each
def test_recipe(bench, layout):
    recipe, wanted = bench.opened(layout.name).recipe, layout.wanted()
    rope, mla = wanted.pop("rope", None), wanted.pop("mla")
    assert {name: getattr(recipe, name) for name in wanted} == wanted
    if mla is None:
        assert recipe.mla is None
    else:
        assert {name: getattr(recipe.mla, name) for name in mla} == pytest.approx(mla)
    if rope is not None:
        assert recipe.rope.inv_freq == pytest.approx(rope.inv_freq, rel=1e-6)
        assert recipe.rope.gain == pytest.approx(rope.gain, rel=1e-6)
        assert recipe.rope.upto == rope.upto


@each
def test_runs(bench, layout):
    hits = bench.hits(layout.name)
    asked = hits.scored & hits.known
    assert asked.sum() > 10
    assert torch.isfinite(hits.log_p[asked]).all()
    assert (hits.log_p[asked] < 0).all()
    assert len(hits.guess[hits.scored].unique()) > 3  # the drafter looks at what it is given
    assert torch.isin(hits.guess[hits.scored], draft_ids(layout.w)).all()


@each_spelling
def test_spellings_of_one_drafter_agree(bench, layout):
    ours, theirs = bench.hits(layout.name), bench.hits(layout.same_as)
    assert torch.equal(ours.guess, theirs.guess)
    assert torch.equal(ours.hit, theirs.hit)
    torch.testing.assert_close(ours.log_p, theirs.log_p, rtol=0, atol=1e-5, equal_nan=True)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: one.name)
def test_refused(tmp_path_factory, one):
    folder = one.write(tmp_path_factory.mktemp("told") / "x7")  # no name that could say it for the library
    with pytest.raises(e3.InputError) as error:
        e3.open_checkpoint(folder)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    assert folder.name in text
    for pattern in one.says:
        assert re.search(pattern, text, re.IGNORECASE), f"{pattern!r} is not in: {text}"
