"""eagle3lib: run an EAGLE-3 drafter by hand, measure it, and say what is wrong with it.

Data goes one way: read (files become objects) -> run (the forward, drafting, decoding) -> measure (numbers with intervals)
-> judge (findings) -> show (figures, tables).
"""

from .judge.audit import audit
from .judge.checks import check_captures
from .judge.evidence import Measured
from .judge.finding import Finding, Findings
from .judge.flags import check_flags
from .judge.mismatch import mismatch
from .judge.probe import Probe, probe
from .judge.recorded import what_is_recorded
from .judge.recording import streams_to_record, what_to_record
from .judge.states import compare_captures
from .judge.streams import which_streams
from .judge.texts import check_texts, compare_texts
from .judge.verdict import Verdict, verdict
from .measure.acceptance import Acceptance, acceptance, by_position
from .measure.accuracy import Accuracy, accuracy
from .measure.alike import alike, distances
from .measure.ceiling import vocabulary_ceiling
from .measure.compare import compare
from .measure.inventory import inventory, recipe_table
from .measure.lens import logit_lens
from .measure.norms import channel_profile, embedding_distance, massive_channels, norm_summary, row_norms
from .measure.sampled import SampledAcceptance, sampled_acceptance
from .measure.state import drafter_state, slot_shares
from .measure.trainers import trainer_figures
from .read.capture import Capture
from .read.captures import Captures, read_captures, write_captures
from .read.checkpoint import Checkpoint, open_checkpoint
from .read.errors import InputError
from .read.flags import Flags, read_flags
from .read.recipe import Recipe
from .read.rope import Rope
from .read.served import read_served
from .read.target import Target, open_target
from .read.vocab_map import read_vocab_map
from .run.chain import Chain, Hits, chain_hits, hits
from .run.decode import Decoded, speculative_decode
from .run.drafter import Drafter, Memory
from .run.record import record, record_all
from .run.recorder import record_prompts
from .run.sampling import Sampled, speculative_sample

__all__ = [
    "Acceptance", "Accuracy", "Capture", "Captures", "Chain", "Checkpoint", "Decoded", "Drafter", "Finding", "Findings",
    "Flags", "Hits", "InputError", "Measured", "Memory", "Probe", "Recipe", "Rope", "Sampled", "SampledAcceptance", "Target",
    "Verdict", "acceptance", "accuracy", "alike", "audit", "by_position", "chain_hits", "channel_profile", "check_captures",
    "check_flags", "check_texts", "compare", "compare_captures", "compare_texts", "distances", "drafter_state",
    "embedding_distance", "hits", "inventory", "logit_lens", "massive_channels", "mismatch", "norm_summary", "open_checkpoint",
    "open_target", "probe", "read_captures", "read_flags", "read_served", "read_vocab_map", "recipe_table", "record",
    "record_all", "record_prompts", "row_norms", "sampled_acceptance", "slot_shares", "speculative_decode",
    "speculative_sample", "streams_to_record", "trainer_figures", "verdict", "vocabulary_ceiling", "what_is_recorded",
    "what_to_record", "which_streams", "write_captures",
]  # fmt: skip
