"""The SGLang recorder against a small server that answers in SGLang's format.

The server is made here after SGLang's sources and documentation (eagle3lib/run/sglang.py names them); no real answer was
recorded. Behind it runs a tiny target by `transformers`, so that what is recorded can be held against `e3.record`.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.run import sglang

STREAMS = (2, 3, 4)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return tiny.loaded(tiny.write_target(tmp_path_factory.mktemp("sglang") / "target"))


class FakeSGLang(ThreadingHTTPServer):
    """Answers /generate, /tokenize and /server_info. A test changes the attributes to what it is about."""

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = target
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked = []  # paths, and for /generate the payloads
        self.info = {
            "model_path": "tiny", "speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "drafter",
            "disable_radix_cache": True, "chunked_prefill_size": -1, "enable_return_hidden_states": True, "version": "0.5.23",
            "internal_states": [{}],
        }  # fmt: skip
        self.info_path = "/server_info"
        self.cached = 0  # tokens taken from the radix cache: their rows are missing
        self.streams = STREAMS
        self.fails_after = None  # answers to /generate before the server breaks down

    def generate(self, asked):
        if asked.get("return_hidden_states") and not self.info["enable_return_hidden_states"]:
            return 400, {"error": {"message": "The server is not configured to return the hidden states."}}
        ids, sampling = torch.tensor(asked["input_ids"]), asked["sampling_params"]
        assert sampling["temperature"] == 0
        written = []
        with torch.inference_mode():
            while len(written) < sampling["max_new_tokens"] and written[-1:] != [1]:
                logits = self.target(torch.cat([ids, torch.tensor(written, dtype=torch.int64)])[None]).logits
                written.append(int(logits[0, -1].argmax()))
        finish = {"type": "stop", "matched": 1} if written[-1] == 1 else {"type": "length", "length": len(written)}
        meta = {
            "id": "0f", "finish_reason": finish, "prompt_tokens": len(ids), "weight_version": "default",
            "completion_tokens": len(written), "cached_tokens": self.cached, "e2e_latency": 0.1,
        }  # fmt: skip
        if asked.get("return_hidden_states"):
            capture = e3.record(self.target, ids, 1, self.streams)
            rows = torch.cat([capture.streams[n] for n in self.streams], dim=1)[self.cached :]
            meta["hidden_states"] = [rows.bfloat16().float().tolist()]  # a server holds bfloat16 and prints numbers
        return 200, {"text": "", "output_ids": written, "meta_info": meta}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        self.answer(*((200, server.info) if self.path == server.info_path else (404, {"detail": "Not Found"})))

    def do_POST(self):
        server, asked = self.server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append((self.path, asked))
        if self.path == "/tokenize":
            ids = [0] * asked.get("add_special_tokens", True) + [min(ord(c) - ord("a"), 90) for c in asked["prompt"]]
            self.answer(200, {"tokens": ids, "count": len(ids), "max_model_len": 512})
        elif server.fails_after is not None and len(server.asked) > server.fails_after:
            self.answer(500, {"error": {"message": "CUDA out of memory"}})
        else:
            self.answer(*server.generate(asked))

    def answer(self, code, content):
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(target):
    with FakeSGLang(target) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def prompts(tmp_path):
    g = torch.Generator().manual_seed(3)
    lines = [
        {"name": f"p{i}", "kind": "test", "input_ids": torch.randint(2, tiny.V, (5 + i,), generator=g).tolist()} for i in range(4)
    ]
    return write(tmp_path, *lines)


def write(tmp_path, *lines):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return file


def record(server, prompts, tmp_path, streams=STREAMS, tokens=12):
    return sglang.record_sglang(server.url, prompts, tmp_path / "out", streams, tokens)


def run(server, prompts, tmp_path, *more):
    return sglang.main(
        ["--url", server.url, "--prompts", str(prompts), "--out", str(tmp_path / "out"), "--max-new-tokens", "12", *more]
    )


def test_what_is_recorded_is_what_the_target_has(server, prompts, tmp_path, target, tiny_checkpoint):
    caps = record(server, prompts, tmp_path)
    assert [c.name for c in caps] == ["p0", "p1", "p2", "p3"]
    for found, line in zip(caps, prompts.read_text().splitlines(), strict=True):
        ids = json.loads(line)["input_ids"]
        assert found.token_ids[: len(ids)].tolist() == ids
        P, T = len(ids), len(found.token_ids)
        assert 2 < T - P <= 12
        assert found.loss_mask.tolist() == [False] * P + [True] * (T - P)
        true = e3.record(target, found.token_ids, P, STREAMS)
        for n in STREAMS:
            assert found.streams[n].dtype == torch.bfloat16  # as the server held it
            assert torch.equal(found.streams[n], true.streams[n].bfloat16())
            assert found.known[n].startswith(f"captures.json: slot {STREAMS.index(n)} of what SGLang gives its drafter")
        assert found.about == {"kind": "test", "finish": "stop" if found.token_ids[-1] == 1 else "length"}
        assert (found.last, found.last_kind) == (None, "none")
        greedy = target(found.token_ids[None]).logits[0].argmax(-1)
        assert torch.equal(greedy[P - 1 : -1], found.token_ids[P:])  # the answer is the target's own
    assert e3.accuracy(e3.Drafter(tiny_checkpoint), caps, steps=2).rows.sum() > 20
    assert all(asked["sampling_params"]["max_new_tokens"] == 1 for _, asked in server.asked[1::2])


def test_streams_that_nobody_named(server, prompts, tmp_path, tiny_checkpoint):
    caps = record(server, prompts, tmp_path, streams=None)
    assert list(caps[0].streams) == ["slot0", "slot1", "slot2"]
    named = sglang.record_sglang(server.url, prompts, tmp_path / "named", STREAMS, 12)
    assert torch.equal(caps[0].joined(tiny_checkpoint.recipe), named[0].joined(tiny_checkpoint.recipe))


def test_rows_missing_because_of_the_cache(server, prompts, tmp_path, capsys):
    server.cached = 3
    assert run(server, prompts, tmp_path) == 2
    said = capsys.readouterr().err
    assert "p0: states of [" in said
    assert "3 of them from the server's cache" in said
    assert "--disable-radix-cache --chunked-prefill-size -1" in said
    with pytest.raises(e3.InputError, match="lists no samples"):
        e3.read_captures(tmp_path / "out")


@pytest.mark.parametrize(
    "hidden_states", [[], None, [[]], [[0.5, 0.5]], [[[0.5, 0.5], [0.5]]], "text", [[["a"]]], [None], [[[0.5]] * 100]]
)
def test_states_that_are_something_else(server, prompts, tmp_path, monkeypatch, hidden_states):
    monkeypatch.setattr(
        server, "generate", lambda asked: (200, {"output_ids": [5, 6], "meta_info": {"hidden_states": hidden_states}})
    )
    with pytest.raises(e3.InputError, match="p0: .*--enable-return-hidden-states"):
        record(server, prompts, tmp_path)


def test_states_of_another_width(server, prompts, tmp_path):
    server.streams = (6,)  # what a server without a drafter gives
    with pytest.raises(e3.InputError, match="p0: states are 32 wide, no multiple of 3 streams.*without an EAGLE3 drafter"):
        record(server, prompts, tmp_path)


@pytest.mark.parametrize(
    "change,said",
    [
        ({"speculative_algorithm": None}, "runs with speculative_algorithm None: without an EAGLE3 drafter"),
        ({"speculative_algorithm": "NEXTN"}, "runs with speculative_algorithm NEXTN"),
        ({"disable_radix_cache": False}, "was not started for recording: .*--disable-radix-cache"),
        ({"enable_return_hidden_states": False}, "was not started for recording: .*--enable-return-hidden-states"),
    ],
)
def test_a_server_that_is_not_set_up(server, prompts, tmp_path, change, said):
    server.info |= change
    with pytest.raises(e3.InputError, match=said):
        record(server, prompts, tmp_path)
    assert not server.asked  # seen before any work is done


def test_older_servers(server, prompts, tmp_path):
    server.info_path, server.info = "/get_server_info", {"model_path": "tiny", "enable_return_hidden_states": True}
    assert len(record(server, prompts, tmp_path)) == 4


def test_a_refusal_is_passed_on(server, prompts, tmp_path):
    server.info = {"model_path": "tiny", "enable_return_hidden_states": 0}
    with pytest.raises(
        e3.InputError, match="p0: .*/generate: the server refused with 400: .*not configured to return the hidden"
    ):
        record(server, prompts, tmp_path)


def test_no_server(prompts, tmp_path, capsys):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_address[1]
    arguments = ["--prompts", str(prompts), "--out", str(tmp_path / "out")]
    for url in (f"http://127.0.0.1:{port}", "127.0.0.1:30000", "no url"):
        assert sglang.main(["--url", url, *arguments]) == 2
        assert "no answer from an SGLang server" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_interrupted_recording_goes_on(server, prompts, tmp_path, monkeypatch, capsys):
    real = sglang.Server.states
    seen = []

    def stops(self, ids):
        seen.append(ids)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return real(self, ids)

    monkeypatch.setattr(sglang.Server, "states", stops)
    assert run(server, prompts, tmp_path, "--streams", "2,3,4") == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert [c.name for c in e3.read_captures(tmp_path / "out")] == ["p0", "p1"]  # readable as it is
    server.asked.clear()
    monkeypatch.setattr(sglang.Server, "states", real)
    assert run(server, prompts, tmp_path, "--streams", "2,3,4") == 0
    assert len(server.asked) == 4  # two requests for each of the two that were left
    whole = sglang.record_sglang(server.url, prompts, tmp_path / "whole", STREAMS, 12)
    for found, expected in zip(e3.read_captures(tmp_path / "out"), whole, strict=True):
        assert found.name == expected.name
        assert torch.equal(found.token_ids, expected.token_ids)
        assert torch.equal(found.streams[3], expected.streams[3])
    server.asked.clear()
    assert run(server, prompts, tmp_path, "--streams", "2,3,4") == 0
    assert not server.asked  # nothing is left to do
    assert "4 samples" in capsys.readouterr().out


def test_a_server_that_breaks_down(server, prompts, tmp_path, capsys):
    server.fails_after = 4
    assert run(server, prompts, tmp_path) == 2
    said = capsys.readouterr().err
    assert "p2: " in said
    assert "CUDA out of memory" in said
    assert "the same command goes on from there" in said
    assert len(e3.read_captures(tmp_path / "out")) == 2


def test_a_folder_that_was_begun_otherwise(server, prompts, tmp_path):
    server.fails_after = 4
    assert run(server, prompts, tmp_path) == 2
    server.fails_after = None
    with pytest.raises(e3.InputError, match="p2: has streams 2, 3, 4, but the folder was begun with slot0, slot1, slot2"):
        record(server, prompts, tmp_path)
    with pytest.raises(e3.InputError, match="holds captures of 'tiny', not of 'another'"):
        server.info["model_path"] = "another"
        record(server, prompts, tmp_path, streams=None)
    server.info["model_path"] = "tiny"
    other = write(tmp_path, {"name": "p0", "input_ids": [7, 7, 7]})
    with pytest.raises(e3.InputError, match="p0 was recorded from another prompt"):
        record(server, other, tmp_path, streams=None)


def test_nothing_else_in_the_folder_is_touched(server, prompts, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("x")
    with pytest.raises(e3.InputError, match="exists and is not empty"):
        record(server, prompts, tmp_path)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_text_goes_through_the_servers_tokenizer(server, tmp_path):
    caps = record(server, write(tmp_path, {"text": "hello"}), tmp_path)
    assert caps[0].name == "prompt_00001"
    assert caps[0].token_ids[:6].tolist() == [0, 7, 4, 11, 11, 14]
    with pytest.raises(e3.InputError, match="line 1: .*the text begins with the token that the tokenizer adds"):
        record(server, write(tmp_path, {"text": "aabc"}), tmp_path)


@pytest.mark.parametrize(
    "line,said",
    [
        ("{", "line 1: is not JSON"),
        ("[1, 2]", "line 1: .* expected an object"),
        ({"name": "x"}, "expected an object with one of input_ids"),
        ({"input_ids": [1, 2], "prompt_tokens": 2}, "prompt_tokens is 2, expected fewer than the 2"),
        ({"messages": []}, "the last not the assistant's"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages need the chat template"),
        ({"text": 5}, "text is 5, expected a string"),
        ({"input_ids": []}, "one list of token ids"),
        ({"input_ids": [[1, 2]]}, "not a batch"),
        ({"input_ids": "1 2"}, "one list"),
        ({"input_ids": [1, -2]}, "one list"),
        ("", "no prompts"),
    ],
)
def test_prompts_that_are_none(server, tmp_path, line, said):
    with pytest.raises(e3.InputError, match=f"prompts.jsonl.*{said}"):
        record(server, write(tmp_path, line), tmp_path)


def test_two_prompts_of_one_name(server, tmp_path):
    with pytest.raises(e3.InputError, match="line 2: the name x is taken"):
        record(server, write(tmp_path, {"name": "x", "input_ids": [3]}, {"name": "x", "input_ids": [4]}), tmp_path)


def test_no_file_of_prompts(server, tmp_path):
    with pytest.raises(e3.InputError, match="nowhere.jsonl: cannot be read"):
        record(server, tmp_path / "nowhere.jsonl", tmp_path)


@pytest.mark.parametrize("streams", [(3, 2, 4), (2, 2, 4), (-1, 2, 4), ()])
def test_streams_in_an_order_that_no_server_has(server, prompts, tmp_path, streams):
    with pytest.raises(e3.InputError, match="--streams: .* expected ascending numbers"):
        record(server, prompts, tmp_path, streams=streams)


def test_answers_too_short_to_score(server, prompts, tmp_path):
    with pytest.raises(e3.InputError, match="--max-new-tokens: 1, expected 2 or more"):
        record(server, prompts, tmp_path, tokens=1)


@pytest.mark.parametrize("output_ids", [None, [], "text"])
def test_a_server_too_old_to_say_its_tokens(server, prompts, tmp_path, monkeypatch, output_ids):
    monkeypatch.setattr(server, "generate", lambda asked: (200, {"text": "x", "output_ids": output_ids, "meta_info": {}}))
    with pytest.raises(e3.InputError, match="p0: .*as output_ids, expected token ids"):
        record(server, prompts, tmp_path)


def test_what_cannot_be_held_in_16_bits_is_kept_whole():
    exact = torch.tensor([[1.0, 0.1]])
    assert sglang.narrow(exact).dtype == torch.float32
    assert torch.equal(sglang.narrow(exact.half().float()).float(), exact.half().float())
    assert sglang.narrow(exact.bfloat16().float()).dtype == torch.bfloat16
