"""From evidence to an answer: one rule for each place where it can be broken, in the order in which they are believed.

What stands in files and flags comes first, then what a recording says against itself, then what the probe found, the serving
side, and at last what no wiring explains. No rule accuses without a margin; where two places explain the same, none is named.
"""

from ..measure.intervals import told
from .answer import Answer, Rule
from .evidence import Evidence, reached, shape
from .heads import HEADS, WEAKEST, lowest
from .ranking import fewest
from .rules_numbers import claim, does_well, of_the_claim, of_the_definition, of_the_economics, of_the_flags, of_the_log
from .rules_states import (
    of_other_text,
    of_the_engine,
    of_the_layers,
    of_the_probe,
    of_the_recording,
    of_the_serving_capture,
    of_the_weights,
    of_what_is_served,
    wider,
)  # fmt: skip


def of_the_curve(e: Evidence) -> Answer | None:
    """Nothing named, but the curve is not a weak model's."""
    if not e.now or e.probe.found:
        return None
    form, curve = shape(e.now)
    if form == "nothing":
        sentence = (
            f"The drafter guesses next to nothing right on sound states (step-1 accuracy {curve[0]:.3f}), and none of "
            f"{len(e.probe.changes)} other ways to run it does: head, d2t, embedding or layers are not the trained ones."
        )
        place = "checkpoint" if e.ckpt.target is not None and e.samples >= 2 else "cannot tell"
        return Answer(place, "weights", sentence, "export the checkpoint anew; compare its tensors with the trainer's", "likely")
    if form == "rises" and not does_well(e):
        sentence = (
            f"The states are not those of training, by the shape of the curve (step 1 {curve[0]:.3f}, step 3 {curve[2]:.3f}), "
            "but nothing that was tried explains it."
        )
        return Answer("cannot tell", "unknown", sentence, "", "a sign, no proof", wider(e))
    return None


def of_the_mask(e: Evidence) -> Answer | None:
    """Nothing else wrong, but nobody says which tokens are answers: then no number here is an accept length."""
    found = next((f for f in e.checks if f.name == "no loss mask"), None)
    if found is None:
        return None
    return Answer(e.place, "no loss mask", f"The captures: {found.what}.", found.settle, "certain", found.settle)


def of_power(e: Evidence) -> Answer | None:
    """Too little to tell: say what would do."""
    if e.problems and e.samples and not e.now:
        return Answer("cannot tell", "unknown", f"Too little to tell: {e.problems[-1]}.", settle="24 samples or more")
    if not e.now:
        return None
    if e.probe.findings[0].level == "open":
        sentence = f"The drafter was not run as configured: {e.probe.findings[0].what}."
        return Answer("cannot tell", "unknown", sentence, settle=e.probe.findings[0].settle)
    tried = len(e.probe.table) + len(e.probe.changes)
    if e.samples < fewest(tried):
        sentence = f"{e.samples} prompts cannot tell how the drafter was trained, whatever the differences."
        return Answer("cannot tell", "unknown", sentence, settle=f"{fewest(tried)} prompts or more; 24 do for most faults")
    return None


def of_the_drafter(e: Evidence) -> Answer | None:
    """No fault found: as good as claimed, weak, or sound."""
    if not e.now:
        return None
    K, became, words = e.steps, *claim(e)
    tau, low, high = reached(e.now, K)
    here, least = f"accept length {told(tau, low, high)} at K = {K} over {e.samples} samples", lowest(K)
    beside = f"; the lowest published at that K is {least:.2f}" if least else ""
    tried = len(e.probe.table) + len(e.probe.changes)
    sure = f"{tried} ways to run it were tried, the hopeless on fewer prompts; none was better by more than noise"
    unseen = f"streams that were not recorded were not tried: {wider(e)}"
    if high < WEAKEST:
        sentence = (
            f"Weak or wired wrong cannot be told: {here}, less than any weak drafter is known for, and nothing tried is better."
        )
        return Answer("cannot tell", "unknown", sentence, sure=sure, settle=wider(e))
    weak = least and high < least
    if became == "missed":
        sentence = f"Nothing is wired wrong here, but the drafter does not do what training said: {words}; {here}{beside}."
        settle = "captures of training's own text: if the claim is met there, it is the text, else another checkpoint's claim"
        do, what = "score it on the text that the claim was made on", "weak model" if weak else "text"
        return Answer("training or text", what, sentence, do, sure, settle)
    if became == "met":
        return Answer("nothing", "healthy", f"Nothing is broken: {words}; {here}{beside}.", sure=sure)
    if weak:
        sentence = f"A weak drafter, wired as it was trained as far as these captures can tell: {here}{beside}."
        sizes = sorted(head.samples for head in HEADS if head.samples)
        do = f"more training data of the target's own writing (published heads that tell: {sizes[0]:,} to {sizes[-1]:,} samples)"
        return Answer("training or text", "weak model", sentence, do, sure, f"the trainer's own figure; {unseen}")
    return Answer("nothing", "healthy", f"Nothing is broken: {here}{beside}.", sure=sure)


def nothing_given(e: Evidence) -> Answer:
    """No rule had anything to go by."""
    have = "nothing that can be judged was given"
    if e.ckpt:
        have = "a checkpoint opens, which proves nothing of how it was trained"
    elif e.flags or e.measured:
        have = "flags and speeds alone show no fault, and nothing else was given"
    sentence = f"Cannot tell: {have}."
    return Answer("cannot tell", "unknown", sentence, settle="hidden states recorded from the target: what_to_record says which")


RULES: tuple[Rule, ...] = (
    of_the_flags, of_the_definition, of_the_layers, of_the_recording, of_the_mask, of_the_weights, of_the_probe,
    of_the_serving_capture, of_what_is_served, of_the_engine, of_the_claim, of_the_economics, of_the_curve, of_other_text,
    of_power, of_the_drafter, of_the_log,
)  # fmt: skip
