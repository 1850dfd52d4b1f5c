"""Record captures from a `transformers` target: any streams, of prompts that it answers greedily or of texts as they are.

    python -m eagle3lib.run.recorder --target my-target --prompts prompts.jsonl --streams 0,2,15,27 --out my-captures

prompts.jsonl: read/prompts.py says what a line may be. Interrupted, the same command goes on where it stopped.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from ..read.capture import Capture
from ..read.captures import SIDECAR, Captures, write_captures
from ..read.errors import InputError
from ..read.prompts import Prompt, left_to_do, read_prompts
from ..read.tensors import existing_folder, read_json
from .device import best_device, device_of, dtype_of, enough_memory
from .record import Text, answers, decoder_of, record_all, watching


def record_prompts(
    target: str | Path,
    prompts: str | Path,
    out: str | Path,
    streams: Sequence[int],
    max_new_tokens: int = 128,
    batch_size: int = 1,
    device: str | None = None,
    dtype: str = "float32",
) -> Captures:
    """Record a Capture of each prompt of a JSON-lines file into folder `out`; what is there from an earlier run is kept.

    `streams`: the n of the r_n to keep; the last state after the final norm is kept too. The target runs in `dtype`, and the
    states are written in it. With `batch_size` above 1 texts share a pass (faster on a GPU; answers may turn at near ties).
    Raises InputError for a folder that is no target, a stream it has not, prompts that are none, another recording in `out`.
    """
    if not streams or batch_size < 1 or max_new_tokens < 2:
        raise InputError(
            f"streams {list(streams)}, batch size {batch_size}, {max_new_tokens} new tokens: expected a stream or more, a text "
            "or more in a pass, and two tokens or more: a shorter answer has nothing to score"
        )
    folder = existing_folder(target, "the target")
    note = f"transformers, {dtype}, greedy answers of up to {max_new_tokens} tokens"
    _check_begun(Path(out), note, streams)
    from transformers import AutoModelForCausalLM, AutoTokenizer  # an extra: only a live target needs it

    where, kind = device_of(device or best_device()), dtype_of(dtype)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: transformers finds no tokenizer in it: {' '.join(str(error).split())[:120]}") from None

    def tokens(given: str | list) -> list[int]:
        if isinstance(given, str):
            return tokenizer(given)["input_ids"]
        return tokenizer.apply_chat_template(given, add_generation_prompt=True, return_dict=False)

    todo = left_to_do(Path(out), read_prompts(prompts, tokens))
    try:
        with enough_memory(f"loading the target onto {where} in {kind}", "a device with more free memory"):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind).to(where).eval()
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: transformers cannot load it: {' '.join(str(error).split())[:120]}") from None
    with watching(model, streams):
        pass  # streams that it has not are told before anything is answered
    samples = _samples(model, todo, streams, max_new_tokens, batch_size)
    n_layers = len(decoder_of(model).layers)
    return write_captures(out, samples, target=folder.name, n_layers=n_layers, dtype=None, note=note, resume=True)


def _check_begun(out: Path, note: str, streams: Sequence[int]) -> None:
    """Raises InputError where `out` holds a recording that was begun with other settings."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file, expected a folder for the captures")
    if not (out / SIDECAR).exists():
        return
    begun = read_json(out / SIDECAR)
    if begun.get("note") != note or (begun.get("samples") and set(begun.get("streams", {})) != set(map(str, streams))):
        raise InputError(
            f"{out}: was begun with other settings ({begun.get('note')}; streams {', '.join(begun.get('streams', {}))}): record "
            "into another folder, or give the same"
        )


def _samples(
    model: nn.Module, prompts: Sequence[Prompt], streams: Sequence[int], max_new_tokens: int, batch_size: int
) -> Iterator[Capture]:
    """A few prompts at a time, so that each is on disk soon after it was answered."""
    for first in range(0, len(prompts), max(batch_size, 1)):
        some = {prompt.name: prompt for prompt in prompts[first : first + batch_size]}
        texts: dict[str, Text] = {p.name: (torch.tensor(p.ids), p.answered) for p in some.values() if p.answered}
        asked = {p.name: torch.tensor(p.ids) for p in some.values() if not p.answered}
        texts |= dict(answers(model, asked, max_new_tokens, batch_size))
        for capture in record_all(model, texts, streams, batch_size):
            yield capture.replace(about=some[capture.name].about)


def parser_of(module: str, about: str, prompts: str, longest: int) -> argparse.ArgumentParser:
    """The command line of a module that records: what all of them ask for. `prompts`: what a line may hold."""
    parser = argparse.ArgumentParser(prog=f"python -m eagle3lib.run.{module}", description=about.splitlines()[0])
    parser.add_argument("--prompts", required=True, help=f"a JSON-lines file: {prompts}, and maybe name")
    parser.add_argument("--out", required=True, help="folder for the captures; an interrupted recording in it goes on")
    parser.add_argument("--max-new-tokens", type=int, default=longest, help="longest answer (default: %(default)s)")
    return parser


def stream_numbers(text: str) -> list[int]:
    """An option's `0,2,15,27` as numbers."""
    try:
        return [int(n) for n in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected numbers as 0,2,15,27") from None


def run(recording: Callable[[], Captures], out: str) -> int:
    """Record, and say how it ended; the exit code: 0, 2 for bad input, 130 after Ctrl-C."""
    try:
        print(f"{recording()}: recorded in {out}")
        return 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        going = (Path(out) / SIDECAR).exists()
        more = f"; what is finished is in {out}, and the same command goes on from there" if going else ""
        print(f"interrupted{more}", file=sys.stderr)
        return 130


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("recorder", __doc__, "input_ids, text or messages", 128)
    parser.add_argument("--target", required=True, help="folder of the target model")
    parser.add_argument("--streams", required=True, type=stream_numbers, help="n of the streams to keep: 0,2,15,27")
    parser.add_argument("--batch-size", type=int, default=1, help="texts in a pass (default: %(default)s)")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16 or float16 (default: %(default)s)")
    args = parser.parse_args(arguments)
    return run(lambda: record_prompts(**vars(args)), args.out)


if __name__ == "__main__":
    sys.exit(main())
