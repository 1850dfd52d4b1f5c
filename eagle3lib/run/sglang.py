"""Record captures from a running SGLang server: what its drafter is given, row by row.

    python -m eagle3lib.run.sglang --url http://127.0.0.1:30000 --prompts prompts.jsonl --out at-server

The server must run with its EAGLE-3 drafter and with

    --enable-return-hidden-states --disable-radix-cache --chunked-prefill-size -1

and nobody else may use it meanwhile: SGLang hands out rows of the whole batch (sgl-project/sglang#4997, #32089). Each prompt
is answered greedily, then prompt and answer are read again in one pass, whose states are kept. With an EAGLE-3 drafter loaded
those are the joined streams that it receives (`LogitsProcessor._get_hidden_states_to_store`); without one they are the last
state, which is of no use here. `--streams 2,30,58` labels them with the layers that you believe the server captures; without
it they are slot0, slot1, slot2, and nothing is claimed. Interrupted, the same command goes on where it stopped.

prompts.jsonl is as read/prompts.py has it, but for messages: the chat template is the tokenizer's. With `transformers`:

    tok = AutoTokenizer.from_pretrained("my-target")
    ids = tok.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False)
    file.write(json.dumps({"name": "q1", "input_ids": ids}) + "\\n")

Known from SGLang's sources and documentation, not by a run against a server. `/generate` with `input_ids`, `sampling_params`,
`return_hidden_states`: `io_struct.GenerateReqInput`, example hidden_states_server.py. `output_ids`, the stop token among them,
and `meta_info` with `cached_tokens` and `finish_reason`: answers printed in the native API's documentation. In `meta_info`
`hidden_states`, first the prefill's rows [T][W]: `scheduler_output_processor_mixin.process_batch_result_prefill`; cut to as
many entries as tokens were generated, so that one token must be: #28496. `/server_info`, older `/get_server_info`, with the
server's arguments by name: `http_server.server_info`. `/tokenize`: `serving_tokenize.OpenAIServingTokenize`.
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..read.capture import Capture, Label
from ..read.captures import SIDECAR, Captures, write_captures
from ..read.errors import InputError
from ..read.prompts import Prompt, left_to_do, read_prompts
from .recorder import parser_of, run, stream_numbers

FLAGS = "--enable-return-hidden-states --disable-radix-cache --chunked-prefill-size -1"
TIMEOUT = 1800  # seconds for one answer: a long one takes minutes, and so does printing its states as text


@dataclass(frozen=True)
class Server:
    """An SGLang server at `url`, asked directly: no proxy."""

    url: str

    def ask(self, path: str, payload: dict | None = None) -> dict:
        """POST `payload` (GET without one) and return the JSON object that comes. Raises InputError when none does."""
        url = self.url.rstrip("/") + path
        body = None if payload is None else json.dumps(payload).encode()
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with direct.open(request, timeout=TIMEOUT) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace").strip()
            raise InputError(f"{url}: the server refused with {error.code}: {said}") from None
        except (OSError, ValueError) as error:  # no connection, cut off, no JSON, no URL
            raise InputError(
                f"{self.url}: no answer from an SGLang server ({getattr(error, 'reason', error)}): start it, or give its --url"
            ) from None
        if not isinstance(found, dict):
            raise InputError(f"{url}: answered with a JSON {type(found).__name__}, expected an object: is this SGLang?")
        return found

    def settings(self) -> dict:
        """The arguments it was started with, by name. Raises InputError when it says that it cannot give what is needed."""
        try:
            found = self.ask("/server_info")
        except InputError:
            found = self.ask("/get_server_info")  # its name until 2025
        algorithm = found.get("speculative_algorithm", "EAGLE3")
        if "EAGLE3" not in str(algorithm).upper():
            raise InputError(
                f"{self.url}: runs with speculative_algorithm {algorithm}: without an EAGLE3 drafter the server returns the last "
                "state, not those that a drafter takes: start it with --speculative-algorithm EAGLE3 and the drafter"
            )
        if found.get("disable_radix_cache") is False or found.get("enable_return_hidden_states") is False:
            raise InputError(f"{self.url}: was not started for recording: start it with {FLAGS}")
        return found

    def tokens(self, text: str | list) -> list[int]:
        """Token ids of `text`, special tokens added as /generate adds them."""
        if not isinstance(text, str):
            raise InputError(f"{self.url}: messages need the chat template, which this server is not asked for: give input_ids")
        found = self.ask("/tokenize", {"prompt": text}).get("tokens")
        if not isinstance(found, list):
            raise InputError(f"{self.url}/tokenize: no tokens in the answer: give input_ids in place of text")
        return found

    def answer(self, ids: list[int], max_new_tokens: int) -> tuple[list[int], str]:
        """The tokens that greedily follow `ids`, its stop token among them, and why they end."""
        greedy = {"temperature": 0, "max_new_tokens": max_new_tokens}
        found = self.ask("/generate", {"input_ids": ids, "sampling_params": greedy})
        written = found.get("output_ids")
        if not isinstance(written, list) or not written:
            raise InputError(
                f"{self.url}: answered {str(written)[:80]} as output_ids, expected token ids: a newer SGLang has them"
            )
        finish = (found.get("meta_info") or {}).get("finish_reason") or {}
        return written, str(finish.get("type", finish))

    def states(self, ids: list[int]) -> Tensor:
        """The states [T, W] that the server has for `ids` [T] in one pass."""
        one = {"temperature": 0, "max_new_tokens": 1}
        found = self.ask("/generate", {"input_ids": ids, "sampling_params": one, "return_hidden_states": True})
        meta = found.get("meta_info") or {}
        if not meta.get("hidden_states"):
            raise InputError(f"{self.url}: no hidden_states in the answer: start the server with {FLAGS}")
        try:
            rows = torch.tensor(meta["hidden_states"][0], dtype=torch.float32)
        except (TypeError, ValueError):
            rows = torch.empty(0)
        if rows.ndim != 2 or len(rows) != len(ids):
            raise InputError(
                f"states of {list(rows.shape)} came for {len(ids)} tokens, {meta.get('cached_tokens', '?')} of them from the "
                f"server's cache, expected a row for each: start it with {FLAGS}, and let nobody else use it meanwhile"
            )
        return narrow(rows)


def narrow(rows: Tensor) -> Tensor:
    """The same numbers in 16 bits where that loses nothing: servers print what was bfloat16 or float16."""
    fits = (dtype for dtype in (torch.bfloat16, torch.float16) if torch.equal(rows.to(dtype).float(), rows))
    return rows.to(next(fits, torch.float32))


@dataclass(frozen=True)
class Recording:
    """Captures of prompts, made one request at a time as they are asked for."""

    server: Server
    prompts: Sequence[Prompt]
    labels: Sequence[Label]
    max_new_tokens: int

    def __len__(self) -> int:
        return len(self.prompts)

    def __iter__(self) -> Iterator[Capture]:
        for prompt in self.prompts:
            try:
                yield self._record(prompt)
            except InputError as error:
                raise InputError(f"{prompt.name}: {error}") from None

    def _record(self, prompt: Prompt) -> Capture:
        written, finish = ([], "given") if prompt.answered else self.server.answer(prompt.ids, self.max_new_tokens)
        ids = prompt.ids + written
        rows, n = self.server.states(ids), len(self.labels)
        if rows.shape[1] % n:
            raise InputError(
                f"states are {rows.shape[1]} wide, no multiple of {n} streams: name the drafter's with --streams; a server "
                "without an EAGLE3 drafter returns the last state alone, which is of no use here"
            )
        slots = rows.split(rows.shape[1] // n, dim=1)
        claim = "" if isinstance(self.labels[0], str) else "; of which layer, as --streams says"
        streams, mask = dict(zip(self.labels, slots, strict=True)), torch.arange(len(ids)) >= (prompt.answered or len(prompt.ids))
        known = {label: f"slot {i} of what SGLang gives its drafter{claim}" for i, label in enumerate(self.labels)}
        about = {**prompt.about, "finish": finish}
        return Capture(prompt.name, torch.tensor(ids), mask, streams, known=known, about=about)


def record_sglang(
    url: str, prompts: str | Path, out: str | Path, streams: Sequence[int] | None = None, max_new_tokens: int = 256
) -> Captures:
    """Record a Capture of each prompt of a JSON-lines file into folder `out`; what is there from an earlier run is kept.

    `streams` are the n that the server captures, ascending as it joins them; without it they are called slot0, slot1, slot2.
    Raises InputError when the server is down or not set up for it, and for a file of prompts that is none.
    """
    if streams is not None and (not streams or list(streams) != sorted(set(streams)) or min(streams) < 0):
        raise InputError(f"--streams: {','.join(map(str, streams))}, expected ascending numbers: SGLang joins them in that order")
    if max_new_tokens < 2:
        raise InputError(f"--max-new-tokens: {max_new_tokens}, expected 2 or more: a shorter answer has nothing to score")
    server = Server(url)
    settings = server.settings()
    todo = left_to_do(Path(out), read_prompts(prompts, server.tokens))
    note = f"SGLang {settings.get('version', '')}, drafter {settings.get('speculative_draft_model_path', 'not said')}, greedy"
    labels = tuple(streams) if streams else ("slot0", "slot1", "slot2")
    recording = Recording(server, todo, labels, max_new_tokens)
    target = str(settings.get("model_path", "not said"))
    return write_captures(out, recording, target=target, n_layers=None, dtype=None, note=note, resume=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("sglang", __doc__, "input_ids, or text", 256)
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="of the server (default: %(default)s)")
    parser.add_argument("--streams", type=stream_numbers, help="n of the streams that the server captures, ascending: 2,30,58")
    args = parser.parse_args(arguments)
    code = run(lambda: record_sglang(**vars(args)), args.out)
    if code == 2 and (Path(args.out) / SIDECAR).exists():  # the server may have gone meanwhile
        print(f"what is finished is in {args.out}; the same command goes on from there", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
