"""The lesson's own forward is the library's, for every variant; its breaks do what they say; its solutions are its breaks."""

import re
import textwrap
from dataclasses import replace

import nbformat
import pytest
import tiny
import torch
from conftest import ROOT
from test_notebooks import run as run_notebook
from test_probe import written_for
from test_truth_forward import VECTORS

import eagle3lib as e3
from eagle3lib.show import lesson, rows
from eagle3lib.show.by_hand import ByHand, Checks, by_hand, by_library, compare, difference

NOTEBOOK = ROOT / "notebooks" / "03_manual_forward.ipynb"
STEPS = 3
FIRST = {  # break -> first tensor that differs
    "last slot copied": "joined",
    "rows one late": "joined",
    "other state fed back": "feed",
    "d2t ignored": "guess",
    "rope base x 10": "layers.0.self_attn.q",
}


def capture_for(recipe: e3.Recipe) -> e3.Capture:
    """Random states of the recipe's width under random tokens of its vocabulary; streams by position."""
    slots = [f"slot{i}" for i in range(recipe.n_streams)]
    capture = tiny.capture(T=24, streams=slots, width=recipe.target_hidden_size)
    return capture.replace(token_ids=capture.token_ids % recipe.vocab_size)


@pytest.mark.parametrize("folder", VECTORS, ids=lambda folder: folder.name)
def test_by_hand_equals_the_library(folder):
    """28 variants: every norm flag, biases, q and k norms, several layers, a full vocabulary, llama3 rope."""
    ckpt = e3.open_checkpoint(folder)
    capture = capture_for(ckpt.recipe)
    checks = compare(by_hand(ByHand(ckpt), capture, 9, STEPS), by_library(e3.Drafter(ckpt), capture, 9, STEPS))
    assert checks.failed() == []
    assert len(checks.made) == 18 + 7 * (ckpt.recipe.n_layers - 1)


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"norm_before_residual": True}, "layers.0.after_attention"),
        ({"norm_output": True}, "feed"),
        ({"rope": e3.Rope.plain(5000.0, tiny.D)}, "layers.0.self_attn.q"),
        ({"eps": 1e-2}, "layers.0.input_layernorm"),
        ({"streams": (3, 2, 4)}, "joined"),
    ],
)
def test_a_wrong_recipe_parts_where_it_is_wrong(tiny_checkpoint, changes, first):
    hand = ByHand(tiny_checkpoint, tiny_checkpoint.recipe.replace(**changes))
    checks = compare(by_hand(hand, tiny.capture(), 9, STEPS), by_library(e3.Drafter(tiny_checkpoint), tiny.capture(), 9, STEPS))
    assert checks.failed()[0] == first


def test_checks_print_and_keep(capsys):
    checks, three = Checks(), torch.ones(3, 4)
    nearly = three.clone()
    nearly[1, 2] = 1.1
    checks({"same": three, "ids": torch.arange(4)}, {"same": three, "ids": torch.arange(4)})
    checks({"nearly": nearly}, {"nearly": three})
    checks({"ids off": torch.arange(4)}, {"ids off": torch.tensor([0, 1, 2, 0])})
    checks({"shape": three}, {"shape": three[:2]})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "passed: same [3, 4], difference 0"
    assert [line.split(":")[0] for line in printed] == ["passed", "passed", "DIFFERS", "DIFFERS", "DIFFERS"]
    assert checks.failed() == ["nearly", "ids off", "shape"]
    assert list(checks.table().index) == ["same", "ids", "nearly", "ids off", "shape"]
    assert difference(nearly, three) == pytest.approx(0.1 / 2)  # 0.1 in a row of norm 2


@pytest.mark.parametrize("name", lesson.BREAKS)
def test_breaks_part_where_they_break_and_touch_nothing(tiny_checkpoint, name):
    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture()
    weights = {key: weight.clone() for key, weight in drafter.weights.items()}
    streams = {label: stream.clone() for label, stream in capture.streams.items()}
    recipe, target_ids = drafter.recipe, drafter.target_ids.clone()
    assert lesson.parts_at(lesson.BREAKS[name], drafter, capture, 9, STEPS) == FIRST[name]
    assert drafter.recipe is recipe
    assert torch.equal(drafter.target_ids, target_ids)
    assert all(torch.equal(drafter.weights[key], weight) for key, weight in weights.items())
    assert all(torch.equal(capture.streams[label], stream) for label, stream in streams.items())
    assert lesson.parts_at(lambda *both: both, drafter, capture, 9, STEPS) == "none"


def test_breaks_that_cannot_break_change_nothing(tmp_path):
    tensors = tiny.drafter_tensors(n_streams=1)
    full = {key: tensor for key, tensor in tensors.items() if key not in ("d2t", "t2d")}
    full["lm_head.weight"] = torch.randn(tiny.V, tiny.H, generator=torch.Generator().manual_seed(1))
    folder = tiny.write_drafter(
        tmp_path / "full", full, draft_vocab_size=tiny.V, eagle_config={"eagle_aux_hidden_state_layer_ids": [2]}
    )
    drafter = e3.Drafter(e3.open_checkpoint(folder))
    for name in ("d2t ignored", "last slot copied"):
        assert lesson.parts_at(lesson.BREAKS[name], drafter, tiny.capture(), 9, STEPS) == "none"


def solutions() -> dict[str, str]:
    """The folded solutions of the notebook, by the name of the function they define."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    blocks = [
        block for cell in cells if cell.cell_type == "markdown" for block in re.findall(r"```python\n(.*?)```", cell.source, re.S)
    ]
    return {re.search(r"def (\w+)\(", block)[1]: textwrap.dedent(block) for block in blocks}


def test_the_solutions_are_the_breaks(tiny_checkpoint):
    drafter, capture, found = e3.Drafter(tiny_checkpoint), tiny.capture(), solutions()
    assert sorted(found) == sorted(change.__name__ for change in lesson.BREAKS.values())
    for change in lesson.BREAKS.values():
        names = {"torch": torch, "lesson": lesson}
        exec(found[change.__name__], names)
        told, meant = (e3.chain_hits(*f(drafter, capture), STEPS) for f in (names[change.__name__], change))
        assert torch.equal(told.guess, meant.guess)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.0, 0.01, 0.0], "about nothing at every step"),
        ([0.4, 0.37, 0.28], "hardly seen"),
        ([0.4, 0.3, 0.25], "a little low at later steps"),
        ([0.4, 0.1, 0.1], "right at step 1, then a fall"),
        ([0.1, 0.15, 0.2], "gains on the unbroken curve with the step"),
        ([0.2, 0.2, 0.15], "low from the first step on"),
    ],
)
def test_shapes(values, said):
    assert lesson.shape(values, [0.4, 0.4, 0.3]) == said
    assert lesson.shape(values, [0.4, 0.4, 0.0]) == "nothing to compare with"


def test_half_and_half_by_hand():
    """120 tokens, K = 2: the product of marginals, all starts and the walk are three numbers."""
    values = lesson.estimates(lesson.half_and_half(2), 2)["value"]
    m1, m2 = 58 / 118, 57 / 117  # tokens 2..59 of 2..119, and 3..59 of 3..119
    assert values.iloc[0] == pytest.approx(1 + m1 + m1 * m2)
    assert values["all starts"] == pytest.approx(1 + (57 * 2 + 1) / 117)
    rounds = 19 + 1 + 59  # rows 0, 3, ..., 54 take two drafts, row 57 one, and rows 59..117 none
    assert values["walk"] == pytest.approx(1 + (19 * 2 + 1) / rounds)


def test_readings_by_hand():
    """Ten tokens, all guessed right: seven rows are right at steps 1 and 2, and six of them have a token for step 3."""
    scored = torch.arange(10) + 2 + torch.arange(3)[:, None] < 10
    sound = e3.Hits("all", guess=scored.long(), hit=scored, scored=scored, written=scored, known=scored, complete=True)
    curve = lesson.Curve.of([sound])
    said = lesson.accuracy_reading(curve, 3)
    assert "Of 7 rows that were right so far 6 have a token for step 3" in said
    assert "without width" not in said  # of one sample there is no interval
    assert "without width" in lesson.accuracy_reading(lesson.Curve.of([sound, replace(sound, name="again")]), 3)
    half = replace(sound, hit=scored & torch.tensor([[True], [False], [True]]))
    table = lesson.breaks_table({"other state fed back": lesson.Curve.of([half])}, curve, 3)
    assert "keeps 50 % of the accuracy of later steps (their mean)" in lesson.loop_reading(table, 3)
    assert "no later step" in lesson.loop_reading(table.assign(**{"step 2": 0.0, "step 3": 0.0}), 3).lower()


def test_the_sample_with_the_longest_chain(tiny_checkpoint):
    drafter = e3.Drafter(tiny_checkpoint)
    captures = [tiny.capture(seed=9, name="chance"), *written_for(drafter, 2, follow=0.9)]
    found = e3.hits(drafter, captures, STEPS)
    capture, row = rows.sample(captures, found)
    assert capture.name != "chance"
    assert found[[c.name for c in captures].index(capture.name)].leading()[row] == max(int(one.leading().max()) for one in found)
    silent = [tiny.capture(prompt=20)]
    with pytest.raises(e3.InputError, match="no row to draft from"):
        rows.sample(silent, e3.hits(drafter, silent, STEPS))


def test_rows_in_words(tiny_checkpoint):
    capture, guess = tiny.capture(), torch.full((18,), 7)
    ids = capture.token_ids.clone()
    ids[11] = 7
    capture = capture.replace(token_ids=ids)
    table = rows.pairs(capture, guess, 9, None)
    assert table.loc[9].tolist() == [str(int(ids[9])), str(int(ids[10])), "7", "7", True]
    drafts = torch.tensor([7, int(ids[12]) + 1, int(ids[13])])
    chain = rows.drafted(capture, 9, drafts, None)
    assert chain.accepted.tolist() == [True, False, False]
    assert chain["attends to"].tolist() == ["0-9", "0-9, own 10", "0-9, own 10-11"]
    assert rows.drafted(capture, 17, drafts, None)["the text has"].tolist() == [str(int(ids[19])), "(ends)", "(ends)"]
    assert rows.texts([1, 2, 3], lambda ids: ["a\n", "é", "$x_{"]) == [r"'a\n'", "2", "'$x_{'"]
    assert rows.shift_figure(capture, 9, lambda ids: ["$x_{"] * len(ids))._repr_png_()  # no formula is made of it


def test_the_notebook_on_other_files(tmp_path):
    """A drafter with nearly all that is optional at once, its own embedding, a full vocabulary, and no target."""
    g = torch.Generator().manual_seed(3)
    tensors = {key.replace("midlayer", "layers.0"): t for key, t in tiny.drafter_tensors().items() if key not in ("d2t", "t2d")}
    tensors["lm_head.weight"] = 3 * torch.randn(tiny.V, tiny.H, generator=g) / tiny.H**0.5
    later = {
        key.replace("layers.0", "layers.1"): t.clone()
        for key, t in tensors.items()
        if "layers.0" in key and "hidden_norm" not in key
    }
    for letter in "qkv":
        later[f"layers.1.self_attn.{letter}_proj.weight"] = later[f"layers.1.self_attn.{letter}_proj.weight"][:, : tiny.H].clone()
    tensors |= later
    for i, letter in ((i, letter) for i in range(2) for letter in "qk"):
        tensors[f"layers.{i}.self_attn.{letter}_norm.weight"] = 1 + 0.2 * torch.randn(tiny.D, generator=g)
        tensors[f"layers.{i}.self_attn.{letter}_proj.bias"] = torch.randn(
            len(tensors[f"layers.{i}.self_attn.{letter}_proj.weight"]), generator=g
        )
    tensors["input_norm.weight"] = 1 + 0.2 * torch.randn(3 * tiny.H, generator=g)
    flags = dict.fromkeys(("norm_before_fc", "norm_before_residual", "norm_output"), True)
    folder = tiny.write_drafter(tmp_path / "mein Entwürfler", tensors, draft_vocab_size=tiny.V, num_hidden_layers=2, **flags)
    captures = written_for(e3.Drafter(e3.open_checkpoint(folder)), 4)
    e3.write_captures(tmp_path / "captures", captures, target="tiny", n_layers=6, dtype=torch.float32)
    done = run_notebook(NOTEBOOK, tmp_path, CHECKPOINT=str(folder), TARGET=None, CAPTURES=str(tmp_path / "captures"))
    outputs = [(c, o) for c in done.cells if c.cell_type == "code" for o in c.outputs]
    answer = next(o.data["text/markdown"] for c, o in outputs if "answer" in c.metadata.get("tags", []))
    assert answer.startswith("**Yes: 25 of 25 tensors agree**")
    printed = "".join(o.text for _, o in outputs if o.output_type == "stream")
    assert "18 of 18 checks passed" in printed
    assert "DIFFERS" not in printed
    assert not [o for _, o in outputs if o.output_type == "stream" and o.name == "stderr"]
