"""Rounds of one request in words: a table of them, and what notebook 06 says."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean

import pandas as pd
import torch
from torch import Tensor, nn

from ..judge.finding import Finding
from ..measure.acceptance import acceptance
from ..measure.sampled import sampled_acceptance
from ..read.capture import Capture
from ..read.errors import InputError
from ..read.target import Target
from ..run.chain import Chain
from ..run.decode import Decoded, speculative_decode
from ..run.drafter import Drafter
from ..run.record import record
from ..run.rounds import Round
from ..run.sampling import Sampled, speculative_sample
from ..run.tree import TreePlan

Text = Callable[[list[int]], list[str]] | None


def table(rounds: Sequence[Round], text: Text) -> pd.DataFrame:
    """A row for each round: the row it starts at, the drafts that were kept, the one that was not, the target's own token."""

    def said(ids: Sequence[int]) -> str:
        ids = [i for i in ids if i >= 0]
        return " ".join(map(repr, text(list(ids)))) if text else " ".join(map(str, ids))

    rows = []
    for one in rounds:
        kept, rejected = one.drafts[: one.accepted], one.drafts[one.accepted : one.accepted + 1]
        rows.append((one.row, said(kept), said(rejected), one.accepted, said([one.after])))
    columns = ["starts at row", "drafted and kept", "drafted and rejected", "accepted", "the target's own"]
    return pd.DataFrame(rows, columns=columns, index=pd.RangeIndex(len(rows), name="round"))


def answer(predicted: Mapping[str, Sequence[Round]], live: Mapping[str, Decoded], own: Sequence[int], steps: int) -> str:
    """What happened for each way to feed the drafter, by prediction and, where it was run, live. Markdown."""
    lines = []
    for name, rounds in predicted.items():
        tau = 1 + sum(one.accepted for one in rounds) / max(len(rounds), 1)
        line = f"{name}: {len(rounds)} rounds, accept length **{tau:.2f}**, predicted from recorded states"
        if name in live:
            accepted, hand = list(live[name].accepted), [one.accepted for one in rounds]
            same = sum(a == b for a, b in zip(accepted, hand, strict=False))
            other = f"live {len(accepted)} rounds and accept length {live[name].accept_length:.2f}, {same} of them the same"
            line += "; " + ("decoded live with the target: **the same, round by round**" if accepted == hand else other)
        lines.append(line)
    texts = {tuple(one.token_ids.tolist()) for one in live.values()}
    if not live:
        head = f"**Round by round, K = {steps}.** Predicted only: the target was not loaded (`LIVE`)."
    elif texts == {tuple(own)}:
        head = f"**The text is the target's own, whatever is drafted; what changes is how many rounds it takes.** K = {steps}."
    else:
        head = f"**The texts differ: something changes what the target writes.** K = {steps}."
    return head + "".join(f"\n* {line[0].upper()}{line[1:]}." for line in lines)


def one_round(rounds: Sequence[Round], text: Text, steps: int) -> str:
    """Of K = `steps`, the first round that kept some drafts and rejected one, step by step. Markdown."""
    one = next((r for r in rounds if r.accepted and len(r.drafts) > r.accepted), rounds[0] if rounds else None)
    if one is None:
        return "There was no round."
    kept, rejected, _, own = table([one], text).iloc[0, 1:]
    middle = (f"{kept} was kept" if one.accepted else "nothing was kept") + "; "
    middle += f"{rejected} was not what it would have written; " if rejected else ""
    return (
        f"The round at row {one.row}: the drafter wrote {steps} tokens; the target read them in one pass; "
        f"{middle}then it wrote {own} itself. **{one.accepted + 1}** tokens for one pass."
    )


@torch.inference_mode()
def plans(drafter: Drafter, sample: Capture, asked: Mapping[str, Chain | TreePlan], target: nn.Module | None) -> pd.DataFrame:
    """For each plan: drafts verified a round, rounds and accept length, predicted and, with the target, live."""
    prompt = sample.token_ids[: int(sample.loss_mask.int().argmax())]
    rows = []
    for name, plan in asked.items():
        K = plan.steps if isinstance(plan, Chain) else plan.deepest
        counts = acceptance(drafter, [sample], plan)
        row = {"plan": name, "drafts a round": K if isinstance(plan, Chain) else plan.nodes, "most accepted": K,
               "rounds": int(counts.counts(K).sum()), "accept length": counts.tau(K)}  # fmt: skip
        if target is not None:
            one = speculative_decode(target, drafter, prompt, plan, len(sample.token_ids) - len(prompt))
            row |= {"rounds, live": len(one.accepted), "accept length, live": one.accept_length}
        rows.append(row)
    return pd.DataFrame(rows).set_index("plan")


def told_plans(table: pd.DataFrame) -> str:
    """What more drafts bought. Markdown."""
    first, most = table.iloc[0], table["accept length"].idxmax()
    live = "accept length, live" in table
    same = live and bool((table["rounds"] == table["rounds, live"]).all())
    agree = "; live decoding took as many rounds in each" if same else "; live decoding took others" if live else ""
    drafts, reached = table["drafts a round"], table["accept length"]
    return (
        f"The chain verifies {first['drafts a round']:.0f} drafts a round and reaches {first['accept length']:.2f}; {most} "
        f"verifies **{drafts[most]}** and reaches **{reached[most]:.2f}** on this prompt{agree}. Whether that pays is a matter "
        "of what verifying so many tokens costs (`04_acceptance`)."
    )


def sampled(
    live: nn.Module, target: Target, drafter: Drafter, prompt: Tensor, plans: Mapping[str, Sampled], texts: int, tokens: int
) -> pd.DataFrame:
    """For each plan, `texts` answers of `tokens` tokens sampled with the `live` target: accept length as it was, and as the
    recorded states of these very texts say: exactly for greedy drafts, on average for drafts that are sampled too.
    """
    rows = []
    for name, plan in plans.items():
        seeds = [torch.Generator().manual_seed(seed) for seed in range(texts)]
        done = [speculative_sample(live, drafter, prompt, plan, tokens, seed) for seed in seeds]
        written = [
            record(live, one.token_ids, len(prompt), list(drafter.recipe.streams), name=f"text {i}") for i, one in enumerate(done)
        ]
        if plan.draft_temperature:
            predicted = sampled_acceptance(drafter, written, plan, target).tau
        else:
            predicted = acceptance(drafter, written, Chain(plan.steps)).tau(plan.steps)
        accepted = [drafts for one in done for drafts in one.accepted]
        rows.append(
            {"drafts": name, "texts": texts, "rounds, live": len(accepted), "accept length, live": 1 + mean(accepted),
             "accept length, from recorded states": predicted,
             "recorded states say it": "on average" if plan.draft_temperature else "exactly"}
        )  # fmt: skip
    return pd.DataFrame(rows).set_index("drafts")


def told_sampled(table: pd.DataFrame, greedy: float, temperature: float) -> str:
    """What a temperature does to the accept length, and whether recorded states told it. Markdown."""
    lengths, predicted = table["accept length, live"], table["accept length, from recorded states"]
    said = "; ".join(f"{name} {lengths[name]:.2f} live, {predicted[name]:.2f} from recorded states" for name in table.index)
    return (
        f"Sampled at temperature {temperature:g}: {said}; on the greedy text it is {greedy:.2f}. The number for sampled drafts "
        f"is a mean over what might have been drafted, so {table['rounds, live'].iloc[-1]} rounds scatter around it."
    )


def engine_runs(folder: Path, drafter: str, sample: str) -> dict[str, tuple[int, tuple[int, ...], list[Round]]]:
    """An engine's rounds of one sample with one drafter, as data/make/serve.py keeps them: run -> K, streams, rounds."""
    if not (folder / "rounds.json").is_file():
        raise InputError(
            f"{folder}: no runs.json and rounds.json, as data/make/serve.py keeps them: give the folder that has them"
        )
    served, rounds = (json.loads((folder / name).read_text()) for name in ("runs.json", "rounds.json"))
    found = {}
    for run in served["runs"]:
        kept = rounds[run["slug"]].get(sample)
        if run["drafter"] == drafter and kept:
            theirs = [Round(row, tuple(drafts), accepted, after) for row, drafts, accepted, after in kept]
            found[f"{run['name']}, K = {run['steps']}"] = run["steps"], tuple(run["streams"]), theirs
    return found


@torch.inference_mode()
def longer(target: nn.Module, sample: Capture, more: int, streams: Sequence[int] | None = None) -> Capture:
    """The sample with `more` greedy tokens behind its text, recorded again (other `streams` of it, where given): what an engine
    may accept past a request's end.
    """
    P, ids = int(sample.loss_mask.int().argmax()), sample.token_ids
    for _ in range(more):
        ids = torch.cat([ids, target(ids[None].to(target.device)).logits[0, -1:].argmax(-1).cpu()])
    return record(target, ids, P, list(streams or sample.streams), name=sample.name)


def beside_engine(found: Mapping[str, Finding]) -> pd.DataFrame:
    """Rounds of an engine beside the prediction: a row for each run."""
    return pd.DataFrame([{"run": name, "level": one.level, "what": one.what} for name, one in found.items()]).set_index("run")


def told_engine(found: Mapping[str, Finding], folder: str) -> str:
    """How many of an engine's runs did as predicted, here and over all prompts. Markdown."""
    same = sum(one.level == "ok" for one in found.values())
    told = f"In **{same} of {len(found)}** runs every round of this prompt is the engine's."
    file = Path(folder) / "predicted.json"
    if file.exists():
        total = json.loads(file.read_text())["total"]
        told += (
            f" Over all prompts and runs, both drafters, right and wrong streams: **{total['rounds_equal']:,} of "
            f"{total['rounds']:,}** rounds, {total['requests_equal']} of {total['requests']} requests."
        )
    return told
