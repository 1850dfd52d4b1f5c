"""Accuracies by `speculators`' own metric code, on random guesses: metrics.json, which test_trainers.py holds ours to.

    build/speculators/bin/python tests/truth/make_metrics.py

Two samples, an answer up to the end of each, as trainers see them; guesses are right three times of four.
"""

import json
from pathlib import Path

import torch
from speculators.models.eagle3.metrics import align_for_step
from speculators.models.metrics import compute_accuracy_single_step

T, VD, STEPS = 24, 11, 4
NAMES = ("full_acc_sum", "full_acc_total", "cond_acc_sum", "cond_acc_total")  # as its `compute_metrics` calls them


def one_sample(prompt: int, g: torch.Generator) -> dict:
    """Guesses and truths of one sample, [T] for each step, and the counts that speculators makes of them."""
    targets = torch.randn(1, T, VD, generator=g)
    truth = targets.argmax(-1)
    mask = torch.arange(T)[None] >= prompt
    prev_correct, guesses, metrics = mask.clone(), [], {}
    for step in range(STEPS):
        right = torch.rand(1, T, generator=g) < 0.75
        shifted = torch.cat([truth[:, step:], torch.zeros(1, step, dtype=truth.dtype)], dim=1)
        guess = torch.where(right, shifted, (shifted + 1) % VD)
        logits = torch.nn.functional.one_hot(guess, VD).float()
        some_logits, some_targets, some_mask, correct_so_far = align_for_step(logits, targets, mask, prev_correct, step)
        counts = compute_accuracy_single_step(some_logits.argmax(-1), some_targets.argmax(-1), some_mask, correct_so_far)
        metrics |= {f"{name}_{step}": float(n) for name, n in zip(NAMES, counts, strict=True)}
        guesses.append(guess[0].tolist())
    return {"prompt": prompt, "truth": truth[0].tolist(), "guesses": guesses, "counts": metrics}


def main() -> None:
    g = torch.Generator().manual_seed(0)
    samples = [one_sample(prompt, g) for prompt in (5, 9)]
    out = Path(__file__).parent / "metrics.json"
    out.write_text(json.dumps({"made by": "speculators 0.9.0", "samples": samples}) + "\n")


if __name__ == "__main__":
    main()
