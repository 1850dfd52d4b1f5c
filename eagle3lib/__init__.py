"""eagle3lib: run an EAGLE-3 drafter by hand, measure it, and say what is wrong with it.

Data goes one way: read (files become objects) -> run (the forward, drafting, decoding) -> measure (numbers with intervals)
-> judge (findings) -> show (figures, tables).

A name is imported when it is first used: `eagle3 --help` needs no PyTorch.
"""

from importlib import import_module

HOME = {  # module -> the public names that live there
    "judge.audit": ("audit",),
    "judge.checks": ("check_captures",),
    "judge.evidence": ("Measured",),
    "judge.finding": ("Finding", "Findings"),
    "judge.flags": ("check_flags",),
    "judge.mismatch": ("mismatch",),
    "judge.probe": ("Probe", "probe"),
    "judge.recorded": ("what_is_recorded",),
    "judge.recording": ("streams_to_record", "what_to_record"),
    "judge.rounds": ("first_difference",),
    "judge.states": ("compare_captures",),
    "judge.streams": ("which_streams",),
    "judge.texts": ("check_texts", "compare_texts"),
    "judge.verdict": ("Verdict", "verdict"),
    "measure.acceptance": ("Acceptance", "acceptance", "by_position"),
    "measure.accuracy": ("Accuracy", "accuracy"),
    "measure.alike": ("alike", "distances"),
    "measure.ceiling": ("vocabulary_ceiling",),
    "measure.compare": ("compare",),
    "measure.inventory": ("inventory", "recipe_table"),
    "measure.lens": ("logit_lens",),
    "measure.norms": ("channel_profile", "embedding_distance", "massive_channels", "norm_summary", "row_norms"),
    "measure.sampled": ("SampledAcceptance", "sampled_acceptance"),
    "measure.serving": ("engine_figures", "tau_from"),
    "measure.state": ("drafter_state", "slot_shares"),
    "measure.trainers": ("trainer_figures",),
    "read.capture": ("Capture",),
    "read.captures": ("Captures", "read_captures", "write_captures"),
    "read.checkpoint": ("Checkpoint", "open_checkpoint"),
    "read.errors": ("InputError",),
    "read.flags": ("Flags", "read_flags"),
    "read.recipe": ("Recipe",),
    "read.rope": ("Rope",),
    "read.served": ("read_served",),
    "read.target": ("Target", "open_target"),
    "read.vocab_map": ("read_vocab_map",),
    "run.chain": ("Chain", "Hits", "chain_hits", "hits"),
    "run.decode": ("Decoded", "speculative_decode"),
    "run.drafter": ("Drafter", "Memory"),
    "run.record": ("record", "record_all"),
    "run.recorder": ("record_prompts",),
    "run.rounds": ("Round", "rounds_of"),
    "run.sampling": ("Sampled", "speculative_sample"),
    "run.tree": ("EagleTree", "SglangTree", "draft_tree", "draft_trees", "tree_hits"),
    "run.vllm": ("tapped",),
}
MODULE_OF = {name: module for module, names in HOME.items() for name in names}
__all__ = sorted(MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{MODULE_OF[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
