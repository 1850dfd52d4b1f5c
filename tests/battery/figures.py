"""Cases in which the states are right and the drafter is itself: settings, definitions of figures, and time."""

from collections.abc import Iterator
from functools import partial

import eagle3lib as e3
from eagle3lib.judge.evidence import Measured
from eagle3lib.measure.trainers import trainer_figures

from . import base
from .base import STEPS, Texts
from .cases import CALM, HARMLESS, Case

SGLANG = "python -m sglang.launch_server --model-path target --speculative-draft-model-path drafter --speculative-eagle-topk 1"
ONE_OF_SIXTEEN = f"{SGLANG} --speculative-algorithm EAGLE3 --speculative-num-steps 1 --speculative-num-draft-tokens 16"
TREE = (
    "python -m sglang.launch_server --model-path target --speculative-draft-model-path drafter --speculative-algorithm EAGLE3 "
    "--speculative-num-steps 6 --speculative-eagle-topk 10 --speculative-num-draft-tokens 32"
)
BASELINE = 90.0  # tokens a second without drafter, as in the published case


def log(drafter: str, texts: Texts, steps: int = STEPS, told: str = "totals", plus: float = 0.0, **changes):
    """The drafter's own log; `plus` is added to the accept length that it prints."""
    walk = base.own_walk(drafter, texts, steps=steps)
    return base.log_of(walk, steps, told, **{"accept_length": walk.tau(steps) + plus, **changes})


def good(drafter: str, texts: Texts, **more) -> dict:
    return {"ckpt": base.checkpoint(drafter), "captures": texts(), "steps": STEPS, **more}


def one_of_sixteen(drafter: str, texts: Texts) -> dict:
    """--speculative-num-steps 1 with 16 draft tokens drafts one: the published case; THUDM/slime#1017."""
    served = log(drafter, texts, 1, "length")
    return good(drafter, texts, flags=ONE_OF_SIXTEEN, logs=[served], steps=1)


def bonus_left_out(drafter: str, texts: Texts) -> dict:
    """Accepted drafts a round are called accept length: smaller by exactly 1, vllm-project/vllm#17908."""
    return good(drafter, texts, steps=8, logs=[log(drafter, texts, 8, "length", plus=-1.0)])


def root_counted(drafter: str, texts: Texts) -> dict:
    """The root is counted as well as the bonus token: larger by exactly 1, SafeAILab/EAGLE#132."""
    return good(drafter, texts, logs=[log(drafter, texts, told="length", plus=1.0)])


def mean_of_means(drafter: str, texts: Texts) -> dict:
    """The mean of each request's own accept length, beside one pooled over rounds: vllm-project/vllm#42508."""
    mean, _, _ = base.own_walk(drafter, texts).mean_of_requests(STEPS)
    return good(drafter, texts, logs=[log(drafter, texts, told="length", accept_length=mean)])


def figures(drafter: str, texts: Texts, steps: int = 5):
    return trainer_figures(e3.accuracy(e3.Drafter(base.checkpoint(drafter)), texts(), steps))


def product_claimed(drafter: str, texts: Texts) -> dict:
    """A product of marginals, rightly named: it is what this drafter gives, sgl-project/SpecForge#128."""
    value = figures(drafter, texts).here[("SpecForge", "simulated_acc_len")]
    return good(drafter, texts, claimed=float(value), claimed_by=("SpecForge", "simulated_acc_len"))


def product_misnamed(drafter: str, texts: Texts) -> dict:
    """SpecForge's sum, to which no 1 is added, claimed as DeepSpec's accept length: a step of 1 between two definitions."""
    value = figures(drafter, texts).here[("SpecForge", "simulated_acc_len")]
    return good(drafter, texts, claimed=float(value), claimed_by=("DeepSpec", "tau_greedy"), logs=[log(drafter, texts)])


def others_left_out(drafter: str, texts: Texts) -> dict:
    """An accuracy over tokens of the draft vocabulary only, claimed as one over all: sgl-project/SpecForge#492."""
    value = figures(drafter, texts).here[("TorchSpec", "acc_0")]
    return good(drafter, texts, claimed=float(value), claimed_by=("SpecForge", "acc_0"), logs=[log(drafter, texts)])


def joint_claimed(drafter: str, texts: Texts) -> dict:
    """A conditional accuracy claimed as a marginal one at step 3: SafeAILab/EAGLE#191."""
    own = e3.accuracy(e3.Drafter(base.checkpoint(drafter)), texts(), 5)
    value = float(own.joint[:, 2].sum() / own.before[:, 2].sum())
    return good(drafter, texts, claimed=value, claimed_by=("SpecForge", "acc_2"), logs=[log(drafter, texts)])


def settings(drafter: str, texts: Texts, times: dict[int, float]) -> list[Measured]:
    """The drafter's own accept length at each K, with a round that takes `times[K]` tokens of the baseline."""
    found = []
    for steps, tokens in times.items():
        tau = base.own_walk(drafter, texts, steps=steps).tau(steps)
        found.append(Measured(steps, BASELINE * tau / tokens, tau))
    return found


def slow_round(drafter: str, texts: Texts) -> dict:
    """A round takes as long as 2.5 tokens: acceptance as predicted, slower than without, sgl-project/sglang#6949."""
    measured = settings(drafter, texts, {1: 2.3, 3: 2.5})
    return good(drafter, texts, measured=measured, baseline=BASELINE, logs=[log(drafter, texts)])


def slow_at_any(drafter: str, texts: Texts) -> dict:
    """A round takes longer than K + 1 tokens: not even a perfect drafter would pay, the published case."""
    measured = settings(drafter, texts, {1: 2.54, 2: 3.4})
    return good(drafter, texts, measured=measured, baseline=BASELINE, steps=1)


def too_many_steps(drafter: str, texts: Texts) -> dict:
    """K = 8 where 2 would pay: every step costs, few are accepted, vllm-project/vllm#20780, sgl-project/sglang#22246."""
    measured = settings(drafter, texts, {2: 1.3, 8: 2.5})
    flags = f"{SGLANG} --speculative-algorithm EAGLE3 --speculative-num-steps 8 --speculative-num-draft-tokens 9"
    return good(drafter, texts, measured=measured, baseline=BASELINE, steps=8, flags=flags)


def tree_at_batch(drafter: str, texts: Texts) -> dict:
    """A tree of 32 tokens a request, with several requests: SafeAILab/EAGLE#298, sgl-project/sglang#11948."""
    tau = base.own_walk(drafter, texts, steps=6).tau(6)
    measured = [Measured(6, BASELINE * tau / 4.0, tau), Measured(6, BASELINE * tau / 7.0, tau)]
    return good(drafter, texts, measured=measured, baseline=BASELINE, flags=TREE, steps=6)


def pays(drafter: str, texts: Texts) -> dict:
    """A round takes 1.2 tokens: faster than without."""
    measured = settings(drafter, texts, {1: 1.1, 3: 1.2})
    return good(drafter, texts, measured=measured, baseline=BASELINE, logs=[log(drafter, texts)])


PUBLISHED = [Measured(1, 56.8, 1.6), Measured(15, 46.7, 1.9)]


def published() -> dict:
    """The published case's own figures, and no file: one draft of 16 asked for, a round of 2.5 tokens."""
    return {"flags": ONE_OF_SIXTEEN, "measured": PUBLISHED, "baseline": BASELINE, "steps": 1}


def published_times() -> dict:
    """The same without the launch line."""
    return {"measured": PUBLISHED, "baseline": BASELINE, "steps": 1}


def story(texts: Texts) -> dict:
    """The drafter of the story as it was: its config names other streams than it was trained on, and the line is as published."""
    ckpt = base.opened("embedding_fed", right=False)
    walk = base.walked(e3.Drafter(ckpt), texts(), 1)
    served = base.log_of(walk, 1, "length")
    return {"ckpt": ckpt, "captures": texts(), "logs": [served], "flags": ONE_OF_SIXTEEN, "baseline": BASELINE, "steps": 1}


ECONOMICS, FLAGS, DEFINITION = ({place} for place in ("economics", "flags", "metric definition"))
ROWS = (  # inputs, places, names, both drafters or the healthy one only
    (one_of_sixteen, FLAGS, {"draft steps"}),
    (bonus_left_out, DEFINITION, {"definition"}),
    (root_counted, DEFINITION, {"definition"}),
    (mean_of_means, DEFINITION | CALM, {"definition"} | HARMLESS),  # 0.05 apart: within noise
    (product_claimed, CALM, HARMLESS),
    (product_misnamed, DEFINITION, {"definition"}),
    (others_left_out, DEFINITION | CALM, {"definition"} | HARMLESS),
    (joint_claimed, DEFINITION, {"definition"}),
    (slow_round, ECONOMICS, {"round time"}),
    (slow_at_any, ECONOMICS, {"round time"}),
    (too_many_steps, ECONOMICS | FLAGS, {"draft steps", "round time"}),
    (tree_at_batch, ECONOMICS | FLAGS, {"draft steps", "round time"}),
    (pays, CALM, HARMLESS),
)


def figure_cases(texts: Texts) -> Iterator[Case]:
    """Each with the healthy drafter, and with the embedding-fed one; every second of those is for tuning."""
    for drafter in base.OWN:
        for number, (inputs, where, what) in enumerate(ROWS):
            tune = drafter == "embedding_fed" and number % 2 == 0
            name = f"{drafter}, figures: {inputs.__name__.replace('_', ' ')}"
            source = inputs.__doc__ or ""
            group = "sound" if where == CALM else "figures"
            sight = "equal" if group == "sound" else "visible"
            yield Case(name, group, drafter, tune, partial(inputs, drafter, texts), frozenset(where), frozenset(what), sight,
                       source=source)  # fmt: skip
    either = frozenset({"flags", "economics"}), frozenset({"draft steps", "round time"})
    yield Case("published figures with their launch line", "figures", "none", False, published, *either)
    yield Case("published figures alone", "figures", "none", False, published_times, frozenset({"economics"}),
               frozenset({"round time"}))  # fmt: skip
    yield Case("the story", "figures", "embedding_fed", True, partial(story, texts), frozenset({"checkpoint"}),
               frozenset({"streams"}))  # fmt: skip
