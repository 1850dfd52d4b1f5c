"""All that runs on a device, on one that is pretended (fake_device.py): nothing stays on the CPU, results are the CPU's."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from conftest import ROOT
from fake_device import NAME, OnDevice, pretended
from test_probe import written_for
from torch import nn

import eagle3lib as e3
from eagle3lib.judge.finding import Findings
from eagle3lib.judge.hypotheses import single_changes
from eagle3lib.judge.rounds import margin
from eagle3lib.measure.compare import accept_lengths
from eagle3lib.measure.sampled import sampled_acceptance
from eagle3lib.run.attention import attend
from eagle3lib.run.chain import draft_slowly
from eagle3lib.run.device import MOST_BLOCK, SHARE, block_size, enough_memory
from eagle3lib.run.record import answers
from eagle3lib.run.sampling import Sampled, speculative_sample
from eagle3lib.run.slots import Slots
from eagle3lib.run.tree import draft_tree, draft_trees
from eagle3lib.show import by_hand, lesson, live, sets
from eagle3lib.show.execute import execute
from eagle3lib.show.stamp import peak_memory

TREES = [e3.EagleTree(2, 3, 12), e3.SglangTree(3, 3, 12)]
SAMPLED = Sampled(2, temperature=0.8, top_p=0.95, draft_temperature=1.0)
PROMPT = torch.tensor([5, 9, 17, 33])


@dataclass
class Place:
    """Files of a tiny drafter, its target and texts, and the device to run on."""

    folder: Path
    captures: e3.Captures
    device: str

    @cached_property
    def ckpt(self) -> e3.Checkpoint:
        return e3.open_checkpoint(self.folder / "drafter", target=self.folder / "target")

    @cached_property
    def drafter(self) -> e3.Drafter:
        return e3.Drafter(self.ckpt, device=self.device)

    @cached_property
    def target(self) -> nn.Module:
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(self.folder / "target", dtype=torch.float32).eval().requires_grad_(False)
        model.generation_config.eos_token_id = None
        return model.to(self.device)

    @property
    def joined(self) -> torch.Tensor:
        return self.captures[0].joined(self.drafter.recipe).to(self.device)

    @property
    def ids(self) -> torch.Tensor:
        return self.captures[0].token_ids.to(self.device)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Folder and captures: texts that follow the drafter half of the time."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("device")
    tiny.write_target(folder / "target")
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(tiny.V)}, unk_token="w2"))  # the recorder wants one
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder / "target")
    ckpt = e3.open_checkpoint(tiny.write_drafter(folder / "drafter"), target=folder / "target")
    return folder, e3.write_captures(folder / "captures", written_for(e3.Drafter(ckpt), 4), target="target", n_layers=tiny.LAYERS)


def layouts(place: Place) -> dict[str, e3.Drafter]:
    """The drafter under every flag that changes the forward, and one that drafts all its tokens at once."""
    recipe, g = place.ckpt.recipe, torch.Generator().manual_seed(3)
    tensors = tiny.drafter_tensors() | {"mask_hidden": torch.randn(1, 1, 3 * tiny.H, generator=g)}
    parallel = tiny.write_drafter(place.folder / "parallel", tensors, mask_token_id=7)
    normed = tiny.drafter_tensors() | {f"fc_norm.{i}.weight": torch.full((tiny.H,), 1.5) for i in range(3)}
    fc_norm = tiny.write_drafter(place.folder / "fc_norm", normed, fc_norm=True)
    made = {path.name: e3.Drafter(e3.open_checkpoint(path), device=place.device) for path in (parallel, fc_norm)}
    flags = ({"norm_output": True}, {"norm_before_residual": True}, {"rope": e3.Rope.plain(1e4, 4)})
    return made | {str(flag): place.drafter.with_recipe(recipe.replace(**flag)) for flag in flags}


def every_change(place: Place) -> dict[str, e3.Hits]:
    changes = single_changes(place.drafter, place.ckpt, [0, 2, 3, 4], True)
    return {h.name: e3.chain_hits(*h.apply(place.drafter, place.captures[0]), 2, temperature=1.0) for h in changes}


def sampled(place: Place) -> list:
    texts = [
        speculative_sample(place.target, place.drafter, PROMPT, SAMPLED, 6, torch.Generator().manual_seed(i)) for i in (0, 1)
    ]
    some = [e3.record(place.target, one.token_ids, 4, (2, 3, 4), name=f"s{i}") for i, one in enumerate(texts)]
    return [texts, sampled_acceptance(place.drafter, some, SAMPLED, place.ckpt.target)]


def probe_and_verdict(place: Place) -> list:
    some = place.captures[:2]
    probed = e3.probe(place.ckpt, some, device=place.device, changes=False)
    return [probed, e3.verdict(place.ckpt, some, claimed=0.7, device=place.device, probed=probed)._repr_html_()]


def recorded_by_file(place: Place) -> e3.Captures:
    (place.folder / "prompts.jsonl").write_text('{"input_ids": [5, 9, 17]}\n{"input_ids": [4, 8]}\n')
    out = place.folder / f"recorded on {place.device}"
    return list(e3.record_prompts(place.folder / "target", place.folder / "prompts.jsonl", out, [0, 2], 6, 2, place.device))


def traced(place: Place) -> list:
    trace, rows = {}, torch.arange(len(place.joined), device=place.device)[:-1]
    out = place.drafter.forward(place.drafter.fuse(place.joined, trace)[:-1], place.ids[1:], rows, e3.Memory(), trace=trace)
    beside = place.drafter.predict_beside(out.normed, place.ids[1:], 0.7)
    return [trace, out, place.drafter.logits(out.normed), place.drafter.predict(out.normed), beside]


RUNS = {
    "forward": traced,
    "every layout": lambda p: {name: e3.chain_hits(d, p.captures[0], 3) for name, d in layouts(p).items()},
    "half precision": lambda p: e3.chain_hits(e3.Drafter(p.ckpt, device=p.device, dtype="bfloat16"), p.captures[0], 3).scored,
    "hits": lambda p: e3.hits(p.drafter, p.captures, 4),
    "hits that stop at a miss": lambda p: e3.hits(p.drafter, p.captures, 4, complete=False),
    "log-probabilities": lambda p: e3.chain_hits(p.drafter, p.captures[0], 3, temperature=0.7),
    "a round slowly": lambda p: draft_slowly(p.drafter, p.joined[:9], p.ids[:10], 3),
    "trees": lambda p: [e3.tree_hits(p.drafter, p.captures[0], plan) for plan in TREES],
    "a tree slowly": lambda p: [draft_tree(p.drafter, p.joined[:9], p.ids[:10], plan) for plan in TREES],
    "slots": lambda p: Slots(p.drafter, p.captures[0], (0, 2, 3)).fused((3, 0, 2)),
    "acceptance": lambda p: [e3.acceptance(p.drafter, p.captures, plan) for plan in (e3.Chain(3), *TREES)],
    "accuracy": lambda p: e3.accuracy(p.drafter, p.captures, 3),
    "state": lambda p: e3.drafter_state(p.drafter, p.captures[:2], 3),
    "shares of slots": lambda p: [e3.slot_shares(p.drafter, p.joined), sets.mean_shares(p.drafter, p.captures)],
    "logit lens": lambda p: e3.logit_lens(p.captures, p.ckpt.target),
    "probe and verdict": probe_and_verdict,
    "every change": every_change,
    "compare": lambda p: accept_lengths({"a": p.ckpt}, p.captures, 2, p.device),
    "margin": lambda p: margin(p.drafter, p.captures[0], 8, 1, *p.drafter.target_ids[:2].tolist()),
    "first difference": lambda p: e3.first_difference(p.drafter, p.captures[0], [e3.Round(4, (1, 2), 0, 3)]),
    "record": lambda p: list(e3.record_all(p.target, {"a": (p.ids.cpu(), 4), "b": (p.ids[:9], 3)}, (0, 2, 6), 2)),
    "answers": lambda p: dict(answers(p.target, {"a": PROMPT, "b": PROMPT[:2]}, 5, 2)),
    "recorder": recorded_by_file,
    "decoding": lambda p: [e3.speculative_decode(p.target, p.drafter, PROMPT, plan, 7) for plan in (e3.Chain(2), TREES[0])],
    "decoding from tokens on the device": lambda p: e3.speculative_decode(p.target, p.drafter, p.ids[:4], e3.Chain(2), 4),
    "sampling": sampled,
    "sets": lambda p: [sets.slow_beside_fast(d := p.drafter, c := p.captures[0], e3.chain_hits(d, c, 3), 3)],
    "by the library": lambda p: by_hand.by_library(p.drafter, p.captures[0], 6, 3),
    "by hand": lambda p: by_hand.by_hand(by_hand.ByHand(p.ckpt, device=p.device), p.captures[0], 6, 3),
    "lesson": lambda p: [lesson.parts_at(way, p.drafter, p.captures[0], 6, 3) for way in lesson.BREAKS.values()],
    "longer": lambda p: live.longer(p.target, e3.record(p.target, p.ids, 4, (0, 2)), 3),
    "plans": lambda p: live.plans(p.drafter, e3.record(p.target, p.ids, 4, (2, 3, 4)), {"K = 2": e3.Chain(2)}, p.target),
}


def same(mine: object, theirs: object, place: str = "") -> None:
    """Raises AssertionError where two results differ by more than rounding. Functions are not compared."""
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-3, atol=1e-4, equal_nan=True, msg=lambda m: f"{place}: {m}")
    elif isinstance(theirs, pd.DataFrame):
        pd.testing.assert_frame_equal(mine, theirs, check_exact=False, rtol=1e-4, atol=1e-6)
    elif isinstance(theirs, Findings):
        same(mine.table(), theirs.table(), place)
    elif is_dataclass(theirs):
        for field in fields(theirs):
            same(getattr(mine, field.name), getattr(theirs, field.name), f"{place}.{field.name}")
    elif isinstance(theirs, Mapping):
        assert list(mine) == list(theirs), place
        for key in theirs:
            same(mine[key], theirs[key], f"{place}[{key}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs), place
        for i, one in enumerate(theirs):
            same(mine[i], one, f"{place}[{i}]")
    elif isinstance(theirs, (float, np.ndarray)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6, err_msg=place)
    elif not callable(theirs):
        assert mine == theirs, place


def on_devices(run, files) -> tuple[object, object]:
    """A run's result on the pretended device, and on the CPU."""
    with pretended():
        mine = run(Place(*files, NAME))
    return mine, run(Place(*files, "cpu"))


@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_of_the_cpu(files, name):
    same(*on_devices(RUNS[name], files))


def left_behind(place: Place) -> e3.Hits:
    """A drafter one of whose weights stayed on the CPU."""
    weights = {**place.drafter.weights, "norm.weight": place.ckpt.tensor("norm.weight")}
    return e3.chain_hits(place.drafter.but(weights=weights), place.captures[0], 2)


def rows_on_the_cpu(place: Place) -> None:
    place.drafter.forward(place.drafter.fuse(place.joined), place.ids, torch.arange(len(place.ids)), e3.Memory())


def drawn_with_a_generator_of_the_cpu(place: Place) -> None:
    torch.multinomial(torch.ones(3, device=place.device), 1, generator=torch.Generator())


def places_on_the_device(place: Place) -> None:
    place.ids.cpu()[place.ids]


WRONG = [left_behind, rows_on_the_cpu, drawn_with_a_generator_of_the_cpu, places_on_the_device, lambda p: p.joined.numpy()]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_gpu_refuses_is_refused(files, wrong):
    with pretended(), pytest.raises(RuntimeError, match="same device|numpy"):
        wrong(Place(*files, NAME))


def test_another_number_is_another_result(files):
    mine, theirs = on_devices(RUNS["hits"], files)
    mine[0] = replace(mine[0], guess=mine[0].guess + 1)
    with pytest.raises(AssertionError):
        same(mine, theirs)


def test_it_does_run_on_the_device(files):
    with pretended():
        place = Place(*files, NAME)
        out = place.drafter.forward(place.drafter.fuse(place.joined), place.ids, torch.arange(26, device=NAME), e3.Memory())
        weights = [*place.drafter.weights.values(), place.drafter.head, *place.target.parameters()]
        assert all(isinstance(x, OnDevice) and x.device.type == NAME for x in [*weights, place.drafter.target_ids, out.normed])


def test_where_memory_runs_out_drafting_goes_on_in_parts(files):
    """On a device too small for all samples at once, with the same hits; on one too small for any, one sentence."""
    theirs = e3.hits(Place(*files, "cpu").drafter, files[1], 4)
    with pretended(size=2**40) as device:
        drafter = Place(*files, NAME).drafter
        weights = device.held
        e3.hits(drafter, files[1], 4)
    needed = device.peak - weights
    with pretended(size=weights + needed * 2 // 3) as device:
        same(e3.hits(Place(*files, NAME).drafter, files[1], 4), theirs)
        assert device.refused
    with pretended(size=2**40) as device, pytest.raises(e3.InputError) as told:
        drafter = Place(*files, NAME).drafter
        device.size = device.held + needed // 50
        e3.hits(drafter, files[1], 4)
    assert re.fullmatch(
        r"memory ran out in drafting 4 steps on pretended:0: [\d.]+ MiB more were asked for, [\d.]+ MiB of [\d.]+ MiB were free; "
        "give shorter samples, fewer steps, --dtype bfloat16, or --device cpu",
        str(told.value),
    )


def test_weights_that_do_not_fit(files):
    with (
        pretended(size=10_000),
        pytest.raises(e3.InputError, match="loading the drafter's weights onto pretended:0 in torch.float32"),
    ):
        e3.Drafter(Place(*files, "cpu").ckpt, device=NAME)


def test_recording_goes_on_with_fewer_texts_in_a_pass(files):
    texts = {f"s{i}": (torch.arange(2, 20 + i), 5) for i in range(4)}
    theirs = list(e3.record_all(Place(*files, "cpu").target, texts, (0, 2, 6), 4))
    with pretended(size=2**40) as device:
        target = Place(*files, NAME).target
        weights = device.held
        list(e3.record_all(target, texts, (0, 2, 6), 4))
    needed = device.peak - weights
    with pretended(size=weights + needed // 2) as device:
        mine = {one.name: one for one in e3.record_all(Place(*files, NAME).target, texts, (0, 2, 6), 4)}
        assert device.refused
    same([mine[one.name] for one in theirs], theirs)
    with pretended(size=weights + needed // 20), pytest.raises(e3.InputError, match="in recording: .* a smaller --batch-size"):
        list(e3.record_all(Place(*files, NAME).target, texts, (0, 2, 6), 4))


GPU_ADVICE = "; give less, --dtype bfloat16, or --device cpu"
SAID = {
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes.":
        "4000 bytes more were asked for; give less, --dtype bfloat16, or a machine with more",
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.14 GiB of which 12.00 GiB is free.":
        "20.00 GiB more were asked for, 12.00 GiB of 79.14 GiB were free" + GPU_ADVICE,
    "CUDA error: out of memory\nFor debugging": "CUDA error: out of memory" + GPU_ADVICE,
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling": "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling" + GPU_ADVICE,
}  # fmt: skip


@pytest.mark.parametrize("said", SAID)
def test_what_allocators_say_is_told_in_one_sentence(said):
    with pytest.raises(e3.InputError) as error, enough_memory("it", "less"):
        raise RuntimeError(said)
    assert str(error.value) == f"memory ran out in it: {SAID[said]}"


def test_another_error_stays_what_it_is():
    with pytest.raises(RuntimeError, match="mat1 and mat2"), enough_memory("it", "less"):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_a_real_allocator_that_gives_up_is_told():
    with pytest.raises(e3.InputError, match="400000000000000 bytes more were asked for"), enough_memory("it", "less"):
        torch.empty(10**14)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_a_block_costs_in_full_was_free(files, dtype):
    """Bytes held at once for one block of numbers: more than the block itself, and never more than what it is a share of."""
    g, T, V = torch.Generator().manual_seed(0), 64, 4000
    with pretended(size=2**40) as device:
        drafter = e3.Drafter(Place(*files, NAME).ckpt, device=NAME, dtype=dtype)
        large = {
            "head": torch.randn(V, tiny.H, generator=g).to(NAME, drafter.dtype),
            "target_ids": torch.arange(V, device=NAME) % tiny.V,
        }
        drafter = drafter.with_recipe(drafter.recipe.replace(vocab_size=V)).but(**large, block=T * V)
        q, k = (torch.randn(T, heads, 8, generator=g).to(NAME, drafter.dtype) for heads in (32, 4))
        rows, normed = torch.arange(T, device=NAME), torch.randn(T, tiny.H, generator=g).to(NAME, drafter.dtype)
        works = {
            "attention": (T * T * 32, lambda: attend(q, rows, (k, k), [(k, k)] * 4, T * T * 32)),
            "guesses": (T * V, lambda: drafter.predict(normed)),
            "log-probabilities": (T * V, lambda: drafter.predict_beside(normed, rows)),
            "trees": (T * V, lambda: draft_trees(drafter, one_step(drafter, normed, rows), rows, e3.SglangTree(2, 4, 8))),
        }
        costs = {}
        for name, (block, work) in works.items():
            before = device.peak = device.held
            work()
            costs[name] = (device.peak - before) / (4 * block)
    assert all(cost < 1 / SHARE for cost in costs.values()), costs
    assert costs["attention"] > 1, "nothing was counted"


def one_step(drafter: e3.Drafter, hidden: torch.Tensor, rows: torch.Tensor):
    return drafter.forward(hidden, rows % tiny.V, rows, e3.Memory())


GPU = torch.device("cuda", 0)


def test_a_block_is_a_share_of_what_pytorch_can_have(monkeypatch):
    """What it keeps for itself and does not use is free too; and no block needs other kernels."""
    for name, value in {"mem_get_info": (10**9, 80 * 10**9), "memory_reserved": 5 * 10**9, "memory_allocated": 10**9}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert block_size(GPU) == int(5 * 10**9 * SHARE / 4)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (140 * 10**9, 141 * 10**9))
    assert block_size(GPU) == MOST_BLOCK < 2**31


def test_peak_memory_is_told_of_gpus_that_were_used(monkeypatch):
    assert peak_memory() == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda i: (3 * 2**30, 0)[i])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda i: (2**30, 80 * 2**30))
    assert peak_memory() == ["cuda:0: 3.0 of 80.0 GiB"]


def test_the_library_leaves_tf32_off_and_sets_nothing(files):
    """In a new process, before and after a drafter has run: what PyTorch has by default, which is float32 in full."""
    script = (
        "import torch, eagle3lib as e3\n"
        "said = lambda: (torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision())\n"
        f"before = said(); d = e3.Drafter(e3.open_checkpoint({str(files[0] / 'drafter')!r}))\n"
        f"e3.hits(d, e3.read_captures({str(files[0] / 'captures')!r}), 2); print(before, said())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "(False, 'highest') (False, 'highest')"


def test_no_layer_of_the_library_is_one_of_cudnn():
    """cuDNN, whose TF32 is on by default, computes convolutions and recurrent layers: there are none."""
    for file in (ROOT / "eagle3lib").rglob("*.py"):
        assert not re.search(
            r"conv[123]d|Conv[123]d|nn\.(LSTM|GRU|RNN)\b|cudnn\.|allow_tf32\s*=|set_float32_matmul", file.read_text()
        )


def test_a_notebooks_kernel_ends_with_it_and_its_memory_is_let_go(tmp_path):
    """Each notebook has a process of its own, that is gone when the next begins: also where a cell failed."""
    kernels = []
    for name, last in (("a", "1"), ("b", "1 / 0")):
        cells = [
            nbformat.v4.new_code_cell("import os; held = bytearray(10**6); print(os.getpid())"),
            nbformat.v4.new_code_cell(last),
        ]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
        execute(tmp_path / f"{name}.ipynb", tmp_path / f"{name}-run.ipynb", {})
        ran = nbformat.read(tmp_path / f"{name}-run.ipynb", as_version=4)
        kernels.append(int(next(cell.outputs[0].text for cell in ran.cells if cell.get("outputs"))))
        with pytest.raises(ProcessLookupError):
            os.kill(kernels[-1], 0)
    assert len({*kernels, os.getpid()}) == 3
