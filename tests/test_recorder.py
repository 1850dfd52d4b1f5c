"""Recording from `transformers`: batches equal single samples, an interruption loses nothing, bad input is a sentence."""

import json

import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.run import record, recorder

STREAMS = (0, 2, 3, tiny.LAYERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny target with a tokenizer of one token a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    path = tiny.write_target(tmp_path_factory.mktemp("recorder") / "target")
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(tiny.V)}, unk_token="w2"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w2")
    tokenizer.chat_template = (
        "{% for m in messages %}w5 {{ m.content }} w6 {% endfor %}{% if add_generation_prompt %}w7{% endif %}"
    )
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def target(folder):
    return tiny.loaded(folder)


def texts(number=7):
    g = torch.Generator().manual_seed(1)
    lengths = torch.randint(4, 40, (number,), generator=g).tolist()
    return {f"t{i}": (torch.randint(2, tiny.V, (T,), generator=g), 2) for i, T in enumerate(lengths)}


def write(tmp_path, *lines):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def run(folder, prompts, tmp_path, *more):
    given = ["--target", str(folder), "--prompts", str(prompts), "--out", str(tmp_path / "out"), "--streams", "0,2,3,6"]
    return recorder.main([*given, "--max-new-tokens", "8", "--device", "cpu", *more])


def test_batches_equal_single_samples(target):
    alone = {c.name: c for c in record.record_all(target, texts(), STREAMS)}
    together = {c.name: c for c in record.record_all(target, texts(), STREAMS, batch_size=3)}
    assert set(alone) == set(together) == set(texts())
    for name, one in alone.items():
        other = together[name]
        assert torch.equal(one.token_ids, other.token_ids) and torch.equal(one.loss_mask, other.loss_mask)
        for n in STREAMS:
            assert (one.stream(n) - other.stream(n)).norm() <= 1e-5 * one.stream(n).norm()
        assert (one.last - other.last).norm() <= 1e-5 * one.last.norm()


def test_one_sample_is_what_transformers_returns(target):
    name, (ids, prompt) = next(iter(texts().items()))
    found = e3.record(target, ids, prompt, STREAMS, name=name, kind="test")
    with torch.inference_mode():
        true = target(ids[None], output_hidden_states=True).hidden_states
    for n in STREAMS[:-1]:
        assert torch.allclose(found.stream(n), true[n][0], atol=1e-5)
    assert torch.allclose(found.last, true[-1][0], atol=1e-5)
    assert found.about == {"kind": "test"} and found.loss_mask.tolist() == [i >= prompt for i in range(len(ids))]


def test_what_is_skipped_is_not_run(target):
    names = [c.name for c in record.record_all(target, texts(), STREAMS, batch_size=2, skip=["t1", "t3"])]
    assert sorted(names) == ["t0", "t2", "t4", "t5", "t6"]


def test_answers_are_the_targets_greedy_ones(target):
    prompts = {name: ids[:4] for name, (ids, _) in texts(3).items()}
    one_by_one = dict(record.answers(target, prompts, max_new_tokens=8))
    together = dict(record.answers(target, prompts, max_new_tokens=8, batch_size=3))
    for name, (text, P) in one_by_one.items():
        assert P == 4 and torch.equal(together[name][0], text)
        with torch.inference_mode():
            best = target(text[None]).logits[0].argmax(-1)
        assert torch.equal(best[P - 1 : -1], text[P:])


def test_text_messages_ids_and_whole_texts(folder, tmp_path, target):
    prompts = write(
        tmp_path,
        {"name": "ids", "input_ids": [9, 10, 11], "kind": "numbers"},
        {"name": "text", "text": "w9 w10 w11"},
        {"name": "messages", "messages": [{"role": "user", "content": "w9 w10"}]},
        {"name": "whole", "input_ids": [9, 10, 11, 12, 13], "prompt_tokens": 3},
    )
    assert run(folder, prompts, tmp_path) == 0
    found = {c.name: c for c in e3.read_captures(tmp_path / "out")}
    assert torch.equal(found["ids"].token_ids, found["text"].token_ids) and found["ids"].about == {"kind": "numbers"}
    assert found["messages"].token_ids[:4].tolist() == [5, 9, 10, 6] and found["messages"].loss_mask.int().argmax() == 5
    assert (
        found["whole"].token_ids.tolist() == [9, 10, 11, 12, 13] and found["whole"].loss_mask.tolist() == [False] * 3 + [True] * 2
    )
    assert found["ids"].streams[2].dtype == torch.float32 and found["ids"].last_kind == "post_norm"


def test_an_interruption_loses_nothing_finished(folder, tmp_path, monkeypatch):
    prompts = write(tmp_path, *({"name": f"p{i}", "input_ids": [9 + i, 10, 11]} for i in range(5)))
    passes, whole = [], record._one_pass

    def stopped(*given):
        passes.append(given)
        if len(passes) == 3:
            raise KeyboardInterrupt
        return whole(*given)

    monkeypatch.setattr(record, "_one_pass", stopped)
    assert run(folder, prompts, tmp_path) == 130
    assert [c.name for c in e3.read_captures(tmp_path / "out")] == ["p0", "p1"]
    assert run(folder, prompts, tmp_path) == 0
    assert len(passes) == 6  # two, the one that was stopped, and the three that were left
    assert sorted(c.name for c in e3.read_captures(tmp_path / "out")) == [f"p{i}" for i in range(5)]
    other = write(tmp_path, {"name": "p0", "input_ids": [30, 31]})
    assert run(folder, other, tmp_path) == 2  # another prompt under a name that is there


def test_bad_input_is_a_sentence(folder, tmp_path, target, capsys):
    ids = torch.tensor([3, 4, 5])
    for given, said in (
        ({"x": (ids, 3)}, "x: 3 prompt tokens of 3"),
        ({"x": (ids[None], 1)}, "must be a tensor"),
    ):
        with pytest.raises(e3.InputError, match=said):
            next(record.record_all(target, given, STREAMS))
    with pytest.raises(e3.InputError, match="r_7 was asked for, but the target has 6 layers"):
        next(record.record_all(target, {"x": (ids, 1)}, (0, 7)))
    with pytest.raises(e3.InputError, match="batch_size: 0"):
        next(record.record_all(target, {"x": (ids, 1)}, (0,), batch_size=0))
    prompts = write(tmp_path, {"input_ids": [9, 10]})
    assert run(tmp_path / "nowhere", prompts, tmp_path) == 2
    assert run(tmp_path, prompts, tmp_path) == 2  # a folder that holds no model
    assert run(folder, tmp_path / "nothing.jsonl", tmp_path) == 2
    assert run(folder, prompts, tmp_path, "--dtype", "float8") == 2
    assert run(folder, write(tmp_path, {"input_ids": [9999]}), tmp_path) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(told) == 5 and "dtype: 'float8'" in told[3] and "token ids reach 9999, but the target has 96" in told[4]


def test_a_folder_begun_with_other_settings_is_not_taken_for_this_job(folder, tmp_path, capsys):
    prompts = write(tmp_path, {"name": "p0", "input_ids": [9, 10, 11]})
    assert run(folder, prompts, tmp_path) == 0
    for more in (("--dtype", "bfloat16"), ("--max-new-tokens", "9"), ("--streams", "0,2")):
        assert run(folder, prompts, tmp_path, *more) == 2, more
        assert "was begun with other settings" in capsys.readouterr().err
    assert run(folder, write(tmp_path, {"name": "p0", "input_ids": [9, 10]}), tmp_path) == 2  # a shorter prompt, begun alike
    for more in (("--batch-size", "0"), ("--max-new-tokens", "1")):
        assert run(folder, prompts, tmp_path, *more) == 2, more
    assert run(folder, write(tmp_path, {"messages": [{"role": "assistant", "content": "w9"}]}), tmp_path / "other") == 2
    assert run(folder, write(tmp_path, {"text": "w9 \u2028 w10"}), tmp_path / "third") == 0
