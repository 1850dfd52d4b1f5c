"""The verdict names the place and the thing, accuses nobody without a margin, and works with whatever it is given."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from test_probe import written_for

import eagle3lib as e3
from eagle3lib.judge.answer import PLACES
from eagle3lib.judge.evidence import check_kinds
from eagle3lib.judge.states import compare_captures
from eagle3lib.read.served import Served
from eagle3lib.show.cli import main
from eagle3lib.show.cli_verdict import figure_of, measured_of

SGLANG = "python -m sglang.launch_server --speculative-algorithm EAGLE3 --speculative-eagle-topk 1"
KIMI = [e3.Measured(1, 56.8, 1.6), e3.Measured(15, 46.7, 1.9)]


WRITTEN: dict[tuple, list[e3.Capture]] = {}  # the tiny drafter's weights are always the same, so its texts are written once


def text_of(drafter: e3.Drafter, samples: int = 16, follow: float = 0.8) -> list[e3.Capture]:
    key = drafter.recipe.streams, follow
    if len(WRITTEN.get(key, ())) < samples:
        WRITTEN[key] = written_for(drafter, samples, follow)
    return WRITTEN[key][:samples]


def log_of(walk: e3.Acceptance, steps: int, **changes) -> Served:
    counts = walk.walks[steps]
    total = sum(counts.values())
    accepted = int(total @ np.arange(steps + 1))
    told = {"name": "log", "steps": steps, "rounds": int(total.sum()), "accepted": accepted, "source": "log", "requests": counts}
    return Served(**{**told, "accept_length": walk.tau(steps), **changes})


def test_the_published_case_from_flags_and_speeds_alone():
    found = e3.verdict(flags=f"{SGLANG} --speculative-num-steps 1 --speculative-num-draft-tokens 16", measured=KIMI, baseline=90)
    assert (found.where, found.what, found.exit_code) == ("flags", "draft steps", 10)
    assert "71.0" in found.sentence
    assert "--speculative-num-steps 3" in found.do
    assert found.cost.loc["break-even", "accept length"] == pytest.approx(1.6 / 56.8 * 90)
    assert found.cost.loc["perfect drafter", "tokens a second"] == pytest.approx(2 / (1.6 / 56.8))


def test_good_flags_and_slow_rounds_are_economics():
    found = e3.verdict(
        flags=f"{SGLANG} --speculative-num-steps 1 --speculative-num-draft-tokens 2", measured=KIMI[:1], baseline=90
    )
    assert found.where == "economics"
    quick = e3.verdict(measured=[e3.Measured(3, 150, 2.9)], baseline=90)
    assert quick.where == "cannot tell"


def test_a_number_that_is_no_accept_length():
    assert e3.verdict(measured=[e3.Measured(3, 50, 0.6)], baseline=40).where == "metric definition"
    assert e3.verdict(measured=[e3.Measured(1, 50, 2.4)], baseline=40).where == "metric definition"


def test_nothing_given_accuses_nobody(tiny_checkpoint):
    for given in ({}, {"ckpt": tiny_checkpoint}, {"baseline": 90.0}):
        found = e3.verdict(**given)
        assert (found.where, found.exit_code) == ("cannot tell", 11)
        assert found.settle


def test_only_a_log():
    def log(tau):
        return Served("log", 3, 100, int(100 * (tau - 1)), tau, None, "log")

    assert e3.verdict(logs=[log(2.9)]).where == "nothing"
    assert e3.verdict(logs=[log(1.3)]).where == "cannot tell"
    assert e3.verdict(logs=[log(1.0)]).where == "cannot tell"


def test_wrong_ids_in_the_config(tiny_checkpoint):
    trained = tiny_checkpoint.recipe.replace(streams=(3, 0, 2))
    found = e3.verdict(tiny_checkpoint, text_of(e3.Drafter(tiny_checkpoint, trained)), steps=2)
    assert (found.where, found.what, found.exit_code) == ("checkpoint", "streams", 10)
    assert "[3, 0, 2]" in found.do
    assert found.cost.loc["if mended", "accept length"] > found.cost.loc["now", "accept length"] + 0.3
    assert found.evidence.probe.streams == (3, 0, 2)


def test_a_server_that_already_runs_it_rightly_counts_nothing_else(tiny_checkpoint):
    """config.json is wrong, the server is not: its higher count is that of the streams trained on, no other definition."""
    right = e3.Drafter(tiny_checkpoint, tiny_checkpoint.recipe.replace(streams=(3, 0, 2)))
    captures = text_of(right)
    found = e3.verdict(tiny_checkpoint, captures, logs=[log_of(e3.acceptance(right, captures, e3.Chain(2)), 2)])
    assert (found.where, found.what) == ("checkpoint", "streams")
    assert not [one for one in found.also if one.where == "metric definition"]


def test_a_sound_drafter_is_not_accused(tiny_checkpoint):
    captures = text_of(e3.Drafter(tiny_checkpoint))
    found = e3.verdict(tiny_checkpoint, captures, served=captures, steps=2)
    assert found.where in ("nothing", "training or text")
    assert not found.also


def test_few_prompts_tell_nothing(tiny_checkpoint):
    found = e3.verdict(tiny_checkpoint, text_of(e3.Drafter(tiny_checkpoint), 5), steps=2)
    assert (found.where, found.exit_code) == ("cannot tell", 11)
    assert "prompts or more" in found.settle
    one = e3.verdict(tiny_checkpoint, text_of(e3.Drafter(tiny_checkpoint), 1), steps=2)
    assert one.where == "cannot tell"


def spoiled(captures, function):
    """What a server hands over: the three streams, spoiled, without names."""
    return [
        c.replace(streams={f"slot{i}": function(i, c) for i in range(3)}, known={}, last=None, last_kind="none") for c in captures
    ]


SERVED = {
    "streams": lambda i, c: c.stream((0, 2, 3)[i]),
    "rows": lambda i, c: torch.cat([c.stream(i + 2)[:1], c.stream(i + 2)[:-1]]),
    "scale": lambda i, c: 4 * c.stream(i + 2),
}


@pytest.mark.parametrize("name", SERVED)
def test_what_the_server_hands_over(tiny_checkpoint, name):
    captures = text_of(e3.Drafter(tiny_checkpoint), 20)
    finding = compare_captures(spoiled(captures, SERVED[name]), captures, (2, 3, 4))
    assert (finding.level, finding.name) == ("fault", name)
    found = e3.verdict(tiny_checkpoint, captures, served=spoiled(captures, SERVED[name]), steps=2)
    if name != "scale":  # it costs nothing behind a norm, and then accuses nobody
        assert (found.where, found.what) == ("serving capture", name)
        assert found.cost.loc["if mended", "accept length"] > found.cost.loc["now", "accept length"]


def test_other_streams_at_the_server_that_cost_nothing_yet_are_named(tiny_checkpoint):
    """The fault is seen in the rows; that these prompts do not show its cost acquits nobody."""
    captures = text_of(e3.Drafter(tiny_checkpoint))
    swapped = []
    for one in captures:
        a, b, c = (one.stream(n) for n in tiny_checkpoint.recipe.streams)
        swapped.append(one.replace(streams={"slot0": b, "slot1": a, "slot2": c}))
    found = e3.verdict(tiny_checkpoint, captures, served=swapped[:3], steps=2)  # three samples show no cost beyond noise
    assert (found.where, found.evidence.states.level) == ("serving capture", "fault")
    assert "no more than noise on these prompts" in found.sentence


def test_numbers_that_are_none_are_no_other_states(tiny_checkpoint):
    captures = text_of(e3.Drafter(tiny_checkpoint))
    broken = []
    for one in captures:
        a, b, c = (one.stream(n).clone() for n in tiny_checkpoint.recipe.streams)
        a[3] = torch.inf
        broken.append(one.replace(streams={"slot0": a, "slot1": b, "slot2": c}))
    found = e3.verdict(tiny_checkpoint, captures, served=broken, steps=2)
    assert (found.where, found.what) == ("serving capture", "broken numbers")


def test_good_states_at_the_server_are_said_good(tiny_checkpoint):
    captures = text_of(e3.Drafter(tiny_checkpoint), 4)
    assert compare_captures(spoiled(captures, lambda i, c: c.stream(i + 2)), captures, (2, 3, 4)).level == "ok"
    other = [c.replace(token_ids=(c.token_ids + 1) % tiny.V) for c in captures]
    assert compare_captures(other, captures, (2, 3, 4)).level == "open"  # nothing in common


def test_an_engine_that_runs_it_otherwise(tiny_checkpoint):
    drafter = e3.Drafter(tiny_checkpoint)
    captures = text_of(drafter, 20)
    wrong = drafter.but(target_ids=torch.arange(tiny.VD))
    served = spoiled(captures, lambda i, c: c.stream(i + 2))
    log = log_of(e3.acceptance(wrong, captures, e3.Chain(2)), 2)
    found = e3.verdict(tiny_checkpoint, captures, served=served, logs=[log])
    assert (found.where, found.what) == ("engine", "map")
    good = log_of(e3.acceptance(drafter, captures, e3.Chain(2)), 2)
    assert e3.verdict(tiny_checkpoint, captures, served=served, logs=[good]).where in ("nothing", "training or text")
    other_text = log_of(e3.acceptance(wrong, captures, e3.Chain(2)), 2, requests=None, rounds=10, accepted=3, accept_length=1.3)
    assert e3.verdict(tiny_checkpoint, captures, logs=[other_text]).where != "engine"


def test_a_broken_folder_is_a_verdict_and_a_wrong_path_is_not(tmp_path, capsys):
    tensors = tiny.drafter_tensors()
    tensors["d2t"] = tensors["d2t"] + torch.arange(tiny.VD) + 60  # ids beyond the vocabulary
    del tensors["t2d"]
    folder = tiny.write_drafter(tmp_path / "broken", tensors)
    assert main(["verdict", str(folder)]) == 10
    assert "The checkpoint is broken" in capsys.readouterr().out
    assert main(["verdict", str(tmp_path / "nowhere")]) == 2
    assert main(["verdict", "--captures", str(tmp_path)]) == 2


def test_the_command_line(tmp_path, capsys):
    given = ["--flags", f"{SGLANG} --speculative-num-steps 1 --speculative-num-draft-tokens 16"]
    given += ["--measured", "K=0 tok/s=90.0", "K=1 tok/s=56.8 tau=1.6", "--json"]
    assert main(["verdict", *given]) == 10
    told = json.loads(capsys.readouterr().out)
    assert (told["where"], told["what"], told["exit"]) == ("flags", "draft steps", 10)
    assert told["where"] in PLACES
    assert told["given"]["measured"] == ["K=0 tok/s=90.0", "K=1 tok/s=56.8 tau=1.6"]
    assert main(["verdict", "--measured", "K=x tok/s=1"]) == 2
    assert "expected" in capsys.readouterr().err


def test_spellings_of_the_command_line():
    assert measured_of("K=1 tok/s=56.8 tau=1.6") == e3.Measured(1, 56.8, 1.6)
    assert figure_of("SpecForge") == ("SpecForge", "acc_0")
    assert figure_of("speculators full_acc_0") == ("speculators", "full_acc_0")
    for wrong in ("K=1", "tok/s=3", "K=1.5 tok/s=3", "K=1 tok/s=-3", "K=1 speed=3", "K=one tok/s=3"):
        with pytest.raises(e3.InputError, match="expected"):
            measured_of(wrong)
    with pytest.raises(e3.InputError, match="expected one of"):
        figure_of("nobody")


def test_an_engine_that_joins_the_right_slots_in_another_order(tiny_checkpoint):
    """What it is handed is sound; in which order it joins that shows in its counts only."""
    drafter = e3.Drafter(tiny_checkpoint)
    captures = text_of(drafter, 20)
    turned = drafter.with_recipe(drafter.recipe.replace(streams=(4, 3, 2)))
    log = log_of(e3.acceptance(turned, captures, e3.Chain(2)), 2)
    found = e3.verdict(tiny_checkpoint, captures, served=spoiled(captures, lambda i, c: c.stream(i + 2)), logs=[log])
    assert (found.where, found.what) == ("engine", "streams")
    assert found.evidence.match.table.index[0] == "streams r_4, r_3, r_2"


@pytest.mark.parametrize("told", ["positions", "totals"])
def test_an_engine_that_tells_no_requests(tiny_checkpoint, told):
    drafter = e3.Drafter(tiny_checkpoint)
    captures = text_of(drafter, 20)
    walk = e3.acceptance(drafter.but(target_ids=torch.arange(tiny.VD)), captures, e3.Chain(2))
    at = sum(walk.walks[2].values())[::-1].cumsum()[::-1][1:]
    log = log_of(walk, 2, requests=None, positions=tuple(at.tolist()) if told == "positions" else None)
    found = e3.verdict(tiny_checkpoint, captures, logs=[log])
    assert found.where in ("engine", "cannot tell")
    assert "d2t absent" in [way.name for way in found.evidence.match.fits]


def test_a_claim_of_another_definition(tiny_checkpoint):
    """A sum to which no 1 is added, over five steps, claimed as an accept length; rightly named it is met."""
    drafter = e3.Drafter(tiny_checkpoint)
    captures = text_of(drafter)
    summed = e3.trainer_figures(e3.accuracy(drafter, captures, 5)).here["SpecForge", "simulated_acc_len"]
    found = e3.verdict(tiny_checkpoint, captures, steps=2, claimed=float(summed), claimed_by=("DeepSpec", "tau_greedy"))
    assert (found.where, found.what) == ("metric definition", "definition")
    assert "simulated_acc_len" in found.sentence
    rightly = e3.verdict(tiny_checkpoint, captures, steps=2, claimed=float(summed), claimed_by=("SpecForge", "simulated_acc_len"))
    assert (rightly.where, rightly.what) == ("nothing", "healthy")


def test_a_round_that_no_published_drafter_would_pay_for():
    measured = [e3.Measured(6, 90 * 1.8 / 4.0, 1.8)]
    assert e3.verdict(measured=measured, baseline=90, steps=6).where == "economics"
    twice = [*measured, e3.Measured(6, 90 * 1.8 / 7.0, 1.8)]  # one K, two batches
    assert e3.verdict(measured=twice, baseline=90, steps=6).where == "economics"
    for pays in (1.9, 2.6):  # slower too, but most published drafters would pay: at 2.6 the weakest would not
        cheap = [e3.Measured(6, 90 * 1.8 / pays, 1.8)]
        assert e3.verdict(measured=cheap, baseline=90, steps=6).where == "cannot tell"


def test_a_met_claim_acquits_nobody(tiny_checkpoint):
    """A trainer that measured the same broken setup meets its own claim."""
    few = text_of(e3.Drafter(tiny_checkpoint), 5)
    low = e3.verdict(tiny_checkpoint, few, steps=2, claimed=0.01, claimed_by=("SpecForge", "acc_0"))
    assert low.where == "cannot tell"
    with pytest.raises(e3.InputError, match="74.7 as acc_0; expected a share, as 0.747 for 74.7 %"):
        e3.verdict(claimed=74.7)


def test_without_a_loss_mask_nothing_else_is_accused(tiny_checkpoint):
    captures = [c.replace(loss_mask=torch.ones_like(c.loss_mask)) for c in text_of(e3.Drafter(tiny_checkpoint))]
    found = e3.verdict(tiny_checkpoint, captures, steps=2)
    assert (found.where, found.what) == ("training capture", "no loss mask")


def test_copies_of_one_prompt_are_one_prompt(tiny_checkpoint):
    one = text_of(e3.Drafter(tiny_checkpoint), 1)[0]
    found = e3.verdict(tiny_checkpoint, [one.replace(name=f"copy {i}") for i in range(24)], steps=2)
    assert (found.where, found.evidence.samples) == ("cannot tell", 1)
    assert any("repeat the tokens" in problem for problem in found.evidence.problems)


def test_served_folders_that_share_nothing_are_said_uncompared(tiny_checkpoint):
    captures = text_of(e3.Drafter(tiny_checkpoint), 32)
    found = e3.verdict(tiny_checkpoint, captures[:16], served=captures[16:], steps=2)
    assert any("share no tokens" in problem for problem in found.evidence.problems)
    whole = e3.verdict(
        tiny_checkpoint, captures[:16], served=captures[:16], steps=2
    )  # four named streams, of which it takes three
    assert whole.evidence.states.level == "ok"


def test_inputs_that_do_not_go_together_are_said():
    log = Served("log", 3, 100, 60, 1.6, None, "log")
    found = e3.verdict(logs=[log], measured=[e3.Measured(3, 56.8, 2.6)], baseline=90.0)
    assert "not one run" in found.evidence.problems[0]
    assert np.isnan(found.cost.loc["now", "tokens a second"])
    other_K = e3.verdict(
        flags=f"{SGLANG} --speculative-num-steps 3 --speculative-num-draft-tokens 4", measured=KIMI[:1], baseline=90.0
    )
    assert other_K.where == "cannot tell"  # K = 1 was measured, K = 3 is served
    assert "no speed was measured at K = 3" in other_K.evidence.problems


def test_the_k_that_was_counted_goes_before_the_k_that_was_asked_for():
    log = Served("log", 5, 100, 60, 1.6, None, "log")
    found = e3.verdict(logs=[log], flags=f"{SGLANG} --speculative-num-steps 3 --speculative-num-draft-tokens 4")
    assert (found.steps, found.evidence.run.steps) == (5, 5)
    assert any("the flags draft K = 3" in problem and "not one launch" in problem for problem in found.evidence.problems)


def test_the_counts_of_a_tree_are_not_held_against_a_chain(tiny_checkpoint):
    captures = text_of(e3.Drafter(tiny_checkpoint))
    counts = e3.acceptance(e3.Drafter(tiny_checkpoint), captures, e3.SglangTree(2, 3, 8))
    tree = SGLANG.replace("topk 1", "topk 3") + " --speculative-num-steps 2 --speculative-num-draft-tokens 8"
    log = replace(log_of(counts, 2), steps=7, requests=None)
    found = e3.verdict(tiny_checkpoint, captures, logs=[log], flags=tree)
    assert (found.steps, found.evidence.match) == (2, None)
    assert found.where not in ("metric definition", "engine")
    assert found.evidence.tree == pytest.approx((counts.tau(2), *counts.interval(2)))
    told = f"tree (2 steps, top-k 3, 8 tokens): accept length {counts.tau(2):.2f} ["
    assert any(told in finding.what for finding in found.why)
    chain = e3.acceptance(e3.Drafter(tiny_checkpoint), captures, e3.Chain(2)).tau(2)
    assert chain < counts.tau(2), "a tree accepts more"
    log = replace(log, accept_length=(chain + 1) / 2, accepted=None, rounds=None)
    poor = e3.verdict(tiny_checkpoint, captures, logs=[log], flags=tree)
    assert "with its tree" in poor.sentence and poor.where == "cannot tell"


def test_a_k_that_nobody_told_accuses_nobody(tmp_path):
    """What SGLang chooses by itself is taken where all its versions choose the same; a default is never held against a count."""
    line = "python -m sglang.launch_server --speculative-algorithm EAGLE3 --speculative-draft-model-path d"
    log = Served("log", None, None, None, 4.5, None, "log")
    found = e3.verdict(flags=line, logs=[log])
    assert found.where == "cannot tell" and found.evidence.assumed
    assert e3.verdict(logs=[log]).where == "cannot tell"
    target = tiny.write_target(tmp_path / "target")
    config = json.loads((target / "config.json").read_text())
    for architecture, steps, tree in (("LlamaForCausalLM", 5, True), ("DeepseekV3ForCausalLM", 3, False), ("Other", 3, False)):
        (target / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
        ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / architecture), target=target)
        found = e3.verdict(ckpt, flags=line, logs=[log])
        assert (found.steps, found.evidence.flags.tree) == (steps, tree), architecture
        assert (found.where == "metric definition") == (architecture == "DeepseekV3ForCausalLM"), architecture


def test_a_tree_that_cannot_be_drafted_is_said_so(tiny_checkpoint):
    captures = text_of(e3.Drafter(tiny_checkpoint))
    trees = {
        SGLANG.replace("topk 1", "topk 3") + " --speculative-num-steps 2": "in full",
        SGLANG.replace("topk 1", "topk 3") + " --speculative-num-steps 2 --speculative-num-draft-tokens 64": "is not predicted",
    }
    for flags, said in trees.items():
        found = e3.verdict(tiny_checkpoint, captures, flags=flags)
        assert found.evidence.tree is None and any(said in problem for problem in found.evidence.problems), flags


def test_layers_that_the_target_has_not(tmp_path):
    target = tiny.write_target(tmp_path / "target")
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 3, 40]}
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", eagle_config=ids), target=target)
    found = e3.verdict(ckpt)
    assert (found.where, found.what) == ("checkpoint", "streams")


def test_aligned_rows_are_not_accused(tiny_checkpoint):
    captures = text_of(e3.Drafter(tiny_checkpoint))
    tried = e3.probe(tiny_checkpoint, captures, aligned=True).changes
    assert "rows" not in set(tried.kind)
    assert "rows" in set(e3.probe(tiny_checkpoint, captures).changes.kind)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ckpt": "folder"}, "ckpt is a str"),
        ({"captures": "folder"}, "captures is a str"),
        ({"captures": ["a", "b"]}, "captures is a list"),
        ({"logs": ["log.txt"]}, "logs is a list"),
        ({"measured": ["K=1 tok/s=5"]}, "expected a list of Measured"),
        ({"flags": 3}, "expected the launch line"),
    ],
)
def test_inputs_of_another_kind_are_said(given, said):
    with pytest.raises(e3.InputError, match=said):
        check_kinds(**given)  # by itself: under test the annotations of `verdict` refuse them first
    with pytest.raises(e3.InputError, match="steps: 0 draft steps"):
        e3.verdict(steps=0)


def test_weights_that_are_no_numbers_need_no_captures(tmp_path):
    tensors = tiny.drafter_tensors()
    tensors["fc.weight"][3, 3] = float("nan")
    found = e3.verdict(e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors)))
    assert (found.where, found.what) == ("checkpoint", "weights")


def test_a_slip_in_a_flag_is_named():
    line = f"{SGLANG} --speculative-draft-tokens 4 --speculative-num-steps 3 --speculative-token-map map.pt"
    found = {f.what: f for f in e3.verdict(flags=line).why if f.name == "unknown flag"}
    slip = next(f for what, f in found.items() if "--speculative-draft-tokens" in what)
    assert slip.level == "warning" and slip.change == "--speculative-num-draft-tokens in place of --speculative-draft-tokens"
    assert next(f for what, f in found.items() if "token-map" in what).level == "note"  # not known, and no slip


def test_a_last_slot_taken_after_the_final_norm(tiny_checkpoint):
    """`hidden_states[-1]` of transformers is no residual stream: the drafter was trained on it, the captures hold r_4."""
    drafter = e3.Drafter(tiny_checkpoint)

    written = text_of(drafter, 20)
    other = [{**{n: c.stream(n) for n in c.streams}, 4: c.stream(4).flip(1)} for c in written]
    swapped = [c.replace(streams=streams, last=c.stream(4)) for c, streams in zip(written, other, strict=True)]
    found = e3.verdict(tiny_checkpoint, swapped)  # `last` is what the slot held when the text was written
    assert "the last slot holds the state after the target's final norm" in found.sentence


def test_other_prompts_of_as_many_tokens_are_no_other_count(tiny_checkpoint):
    """Totals say how long a text was, not which: where the accept length is the predicted one nobody is accused."""
    drafter = e3.Drafter(tiny_checkpoint)
    captures = text_of(drafter, 16)
    walk = e3.acceptance(drafter, captures, e3.Chain(2))
    rounds = int(1.03 * sum(counts.sum() for counts in walk.walks[2].values()))
    accepted = round(rounds * (walk.tau(2) - 1))
    other = log_of(walk, 2, requests=None, rounds=rounds, accepted=accepted, accept_length=1 + accepted / rounds)
    assert e3.verdict(tiny_checkpoint, captures, logs=[other]).where in ("nothing", "training or text")


@pytest.mark.parametrize("plus", [1.0, -1.0])
def test_a_log_that_counts_one_more_or_less(tiny_checkpoint, plus):
    """A log that tells its mean only: the root counted too, or the target's own token left out."""
    drafter = e3.Drafter(tiny_checkpoint)
    captures = text_of(drafter)
    tau = e3.acceptance(drafter, captures, e3.Chain(2)).tau(2)
    log = Served("SGLang log", None, None, None, tau + plus, None, "log")
    found = e3.verdict(tiny_checkpoint, captures, logs=[log], steps=2)
    assert (found.where, found.what) == ("metric definition", "definition")


def test_another_measured_k_pays():
    measured = [e3.Measured(2, 110, 1.6), e3.Measured(8, 60, 1.7)]
    found = e3.verdict(measured=measured, baseline=90, steps=8)
    assert (found.where, found.what, found.do) == ("flags", "draft steps", "draft K = 2 steps")
    assert e3.verdict(measured=measured, baseline=90, steps=2).where == "cannot tell"  # that one pays


def test_an_engine_that_is_near_a_hypothesis_in_its_own_manner(tiny_checkpoint):
    """Tokens one behind, but for the first round of each request: nothing fits exactly, and one way is nearest by far."""
    drafter = e3.Drafter(tiny_checkpoint)
    captures = text_of(drafter, 20)
    behind = drafter.but(wiring=replace(drafter.wiring, token=0))
    walk = e3.acceptance(behind, captures, e3.Chain(2))
    counts = {}
    for number, (name, rounds) in enumerate(walk.walks[2].items()):
        tokens = int(rounds @ [1, 2, 3])
        twos = int(rounds[2]) + (number % 4 == 0)  # every fourth request accepts two drafts once more
        ones = int(rounds[1])
        counts[name] = np.array([tokens - 2 * ones - 3 * twos, ones, twos])
    total = sum(counts.values())
    tau = 1 + float(total @ [0, 1, 2] / total.sum())
    log = Served("log", 2, int(total.sum()), int(total @ [0, 1, 2]), tau, counts, "log")
    found = e3.verdict(tiny_checkpoint, captures, served=spoiled(captures, lambda i, c: c.stream(i + 2)), logs=[log])
    assert (found.where, found.what) == ("engine", "tokens")


def test_a_norm_of_zeros_is_no_weak_model(tmp_path):
    tensors = {**tiny.drafter_tensors(), "midlayer.hidden_norm.weight": torch.zeros(tiny.H)}
    sound = e3.open_checkpoint(tiny.write_drafter(tmp_path / "sound"))
    broken = e3.open_checkpoint(tiny.write_drafter(tmp_path / "broken", tensors))
    found = e3.verdict(broken, text_of(e3.Drafter(sound)))
    assert (found.where, found.what) == ("checkpoint", "weights") and "hidden_norm.weight is all zeros" in found.sentence


def test_a_mean_without_draft_steps_is_set_beside_nothing():
    mean = Served("SGLang log", None, None, None, 2.3, None, "log")
    found = e3.verdict(logs=[mean])
    assert (found.where, found.exit_code) == ("cannot tell", 11) and "at how many draft steps" in found.sentence
    assert e3.verdict(logs=[mean], steps=3).where == "nothing"
    tree = "python -m sglang.launch_server --speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-eagle-topk 8"
    found = e3.verdict(logs=[mean], flags=f"{tree} --speculative-num-draft-tokens 64")
    assert found.where == "cannot tell" and "a tree accepts more than a chain" in found.sentence


@pytest.mark.parametrize("text", ["K=3 tok/s=1e400 tau=2", "K=1000000 tok/s=5", "K=inf tok/s=5"])
def test_speeds_that_no_server_has_are_refused(text):
    with pytest.raises(e3.InputError, match="--measured"):
        measured_of(text)
