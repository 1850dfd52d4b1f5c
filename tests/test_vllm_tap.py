"""The tap on vLLM: on a small stand-in that calls its drafter as vLLM 0.32.0 does; and what a real one did, in data/serving."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT
from torch import nn

import eagle3lib as e3
from eagle3lib.measure.acceptance import walk
from eagle3lib.run.vllm import TO_RUNNER, Round, tapped

W, K = 6, 3
TEXTS = {"0": (7, list(range(100, 130))), "1": (4, list(range(200, 230))), "2": (9, list(range(300, 330)))}  # P, text
GOOD = {"0": [2, 0, 3, 1, 0, 3], "1": [0, 0, 1, 3, 3], "2": [3, 3, 0, 0, 2]}  # how many drafts of each round hit
TOKENS = {"0": 10, "1": 6, "2": 12}  # asked for


def state(token: int, position: int) -> list[float]:
    """What the target has at a position: a rejected draft gives another row than the text's token."""
    return [token + place / 10 + position / 1000 for place in range(W)]


class Drafter:
    """Calls its model and changes what it was given, as vLLM's proposer does; returns the drafts that are laid out for it."""

    def __init__(self):
        self.model = nn.Module()
        self.model.combine_hidden_states = combine  # as a method of the class would be found
        self.next, self.broken = [], False

    def propose(self, *, target_hidden_states, target_token_ids, common_attn_metadata, **_):
        self.model.combine_hidden_states(target_hidden_states)
        if self.broken:
            raise RuntimeError("out of memory")
        common_attn_metadata.query_start_loc = torch.zeros(1, dtype=torch.int32)
        target_hidden_states.zero_()
        target_token_ids.zero_()
        return torch.tensor(self.next)


def combine(states):
    return states[:, :2]


class Engine:
    """Answers all at once, `chunk` tokens of a prompt at a step; `careless`: a wrong token is embedded at a chunk's end."""

    def __init__(self, chunk: int = 100, careless: bool = False, cached: int = 0):
        self.chunk, self.careless, self.cached = chunk, careless, cached
        requests = {f"{name}-0a1b": SimpleNamespace(num_prompt_tokens=P) for name, (P, _) in TEXTS.items()}
        self.runner = SimpleNamespace(drafter=Drafter(), requests=requests, input_batch=SimpleNamespace(req_ids=[]))
        inside = self.runner
        for name in reversed(TO_RUNNER):
            inside = SimpleNamespace(**{name: inside})
        self.llm_engine = inside.llm_engine

    def generate(self) -> list:
        """Runs to the end. Returns outputs as `LLM.generate` does."""
        read = dict.fromkeys(TEXTS, self.cached)  # tokens of each text whose rows are done
        drafts: dict[str, list[int]] = {}
        left = {name: list(good) for name, good in GOOD.items()}
        while live := [name for name, (P, _) in TEXTS.items() if read[name] < P + TOKENS[name] - 1]:
            live = live[::-1] if sum(read.values()) % 2 else live  # the order of requests changes
            self.step(live, read, drafts, left)
        return [
            SimpleNamespace(
                request_id=name, prompt_token_ids=text[:P], outputs=[SimpleNamespace(token_ids=text[P : P + TOKENS[name]])]
            )
            for name, (P, text) in TEXTS.items()
        ]

    def step(self, live, read, drafts, left):
        tokens, positions, bounds, ends, after = [], [], [0], [], []
        for name in live:
            P, text = TEXTS[name]
            at = read[name]
            if at < P:
                fed, good = text[at : min(P, at + self.chunk)], None
                committed = len(fed)
            else:
                fed = [text[at], *drafts[name]]
                committed = 1 + next((i for i, d in enumerate(drafts[name]) if d != text[at + 1 + i]), K)
            read[name] = at + committed
            tokens += fed
            positions += range(at, at + len(fed))
            ends.append(bounds[-1] + committed - 1)
            bounds.append(bounds[-1] + len(fed))
            after.append(text[P - 1] if self.careless and read[name] < P else text[read[name]])
            good = (left[name].pop(0) if left[name] else 0) if read[name] >= P else K  # a prompt's chunk: its own next tokens
            true = text[read[name] + 1 : read[name] + 1 + K]
            drafts[name] = [t if i < good else t + 1 for i, t in enumerate(true)]
        self.runner.input_batch.req_ids = [f"{name}-0a1b" for name in live]
        self.runner.drafter.next = [drafts[name] for name in live]
        self.runner.drafter.propose(
            target_token_ids=torch.tensor(tokens), target_positions=torch.tensor(positions),
            target_hidden_states=torch.tensor([state(t, p) for t, p in zip(tokens, positions, strict=True)]),
            next_token_ids=torch.tensor(after), token_indices_to_sample=torch.tensor(ends),
            common_attn_metadata=SimpleNamespace(query_start_loc=torch.tensor(bounds)),
        )  # fmt: skip


def expected(name: str) -> list[Round]:
    (P, text), row, rounds = TEXTS[name], TEXTS[name][0] - 1, []
    for good in GOOD[name]:
        if row + 1 >= P + TOKENS[name] - 1:
            break
        true = text[row + 2 : row + 2 + K]
        rounds.append(Round(row, tuple(t + (i >= good) for i, t in enumerate(true)), good, text[row + 2 + good]))
        row += good + 1
    return rounds


@pytest.mark.parametrize("chunk", [100, 4, 1])  # chunks of 4 look like a round whose drafts all hit
def test_rows_and_rounds_of_each_request(chunk):
    engine = Engine(chunk)
    with tapped(engine) as tap:
        outputs = engine.generate()
    assert {name.removesuffix("-0a1b"): rounds for name, rounds in tap.rounds.items()} == {n: expected(n) for n in TEXTS}
    for capture in tap.captures(outputs, slots=3):
        P, text = TEXTS[capture.name]
        text = text[: P + TOKENS[capture.name]]
        assert capture.token_ids.tolist() == text  # ends where the request did
        assert capture.loss_mask.int().argmax() == P
        rows = torch.cat([capture.stream(f"slot{i}") for i in range(3)], dim=1)
        assert torch.equal(rows, torch.tensor([state(t, i) for i, t in enumerate(text[:-1])]))
    assert any(len(c.token_ids) > TEXTS[c.name.removesuffix("-0a1b")][0] + 10 for c in tap.captures())  # goes on past the end
    assert not any(request.misfed() for request in tap.requests.values())


def test_a_wrong_token_at_the_end_of_a_chunk_is_seen():
    engine = Engine(chunk=3, careless=True)
    with tapped(engine) as tap:
        engine.generate()
    assert tap.request("0").misfed() == [2]  # row 5 is before the prompt's last token: there the wrong token is right
    assert tap.request("1").misfed() == []
    assert tap.request("2").misfed() == [2, 5]


def test_all_is_as_it_was_afterwards():
    engine = Engine()
    drafter = engine.runner.drafter
    drafter.broken = True
    with pytest.raises(RuntimeError, match="out of memory"), tapped(engine) as tap:
        engine.generate()
    assert "propose" not in vars(drafter)
    assert drafter.model.combine_hidden_states is combine
    drafter.broken = False
    engine.generate()
    assert tap.requests == {}


@pytest.mark.parametrize("missing", [*TO_RUNNER, "drafter", "propose", "model", "combine_hidden_states"])
def test_an_engine_of_another_shape(missing):
    engine = Engine()
    if missing == "propose":
        engine.runner.drafter = SimpleNamespace(model=engine.runner.drafter.model)
    elif missing == "combine_hidden_states":
        del engine.runner.drafter.model.combine_hidden_states
    else:
        owner = engine
        for name in (*TO_RUNNER, "drafter", "model"):
            if name == missing:
                break
            owner = getattr(owner, name)
        setattr(owner, missing, None)
    with pytest.raises(e3.InputError, match=f"has no {missing}, where vLLM 0.32.0 .*(MULTIPROCESSING=0|eagle3)"), tapped(engine):
        pass


def test_what_is_refused():
    engine = Engine(cached=2)
    with tapped(engine) as tap:
        outputs = engine.generate()
    with pytest.raises(e3.InputError, match="2 of 16 rows never reached the drafter.*enable_prefix_caching=False"):
        tap.captures(outputs)
    engine = Engine()
    with tapped(engine) as tap:
        outputs = engine.generate()
        with pytest.raises(e3.InputError, match="called without target_positions"):
            engine.runner.drafter.propose(target_token_ids=torch.zeros(1))
    with pytest.raises(e3.InputError, match="6 wide, no multiple of 4"):
        tap.captures(outputs, slots=4)
    with pytest.raises(e3.InputError, match="0 requests of id 7"):
        tap.request("7")
    engine.runner.use_async_scheduling = True
    with pytest.raises(e3.InputError, match="async_scheduling=False"), tapped(engine):
        pass


SERVING = ROOT / "data" / "serving"
RUNS = json.loads((SERVING / "runs.json").read_text())
ROUNDS = json.loads((SERVING / "rounds.json").read_text())
SLUGS = {run["slug"]: run for run in [*RUNS["runs"], RUNS["chunked"]]}
PREDICT = ("smalltalk-heldout-0000", "rewrite-heldout-0000", "extract-heldout-0000", "opinion-heldout-0000")
MORE = 4  # tokens behind a text: one fewer than the longest chain


@pytest.fixture(scope="module")
@torch.inference_mode()
def texts(live_target, demo_captures):
    """Each text of PREDICT, its length, and a capture of it, float32, with MORE of the target's tokens behind."""
    made = {}
    for capture in demo_captures:
        if capture.name in PREDICT:
            ids, P = capture.token_ids, int(capture.loss_mask.int().argmax())
            for _ in range(MORE):
                ids = torch.cat([ids, live_target(ids[None]).logits[0, -1:].argmax(-1)])
            streams = (0, 1, 2, 14, 15, 26, 27)
            made[capture.name] = len(capture.token_ids), e3.record(live_target, ids, P, streams, name=capture.name)
    return made


def drafter_of(run: dict, target_folder) -> e3.Drafter:
    ckpt = e3.open_checkpoint(ROOT / "data" / "drafters" / run["drafter"], target=target_folder)
    return e3.Drafter(ckpt, ckpt.recipe.replace(streams=tuple(run["streams"])))


def rounds_of(drafter, capture, T: int, K: int) -> list[int]:
    """Accepted drafts of each round of a request that ended after T tokens."""
    hits = e3.chain_hits(drafter, capture, K)
    return walk(hits.leading().numpy(), hits.start(), T - 2, K)


@pytest.mark.parametrize("slug", [slug for slug, run in SLUGS.items() if not run["chunk"]])
def test_vllm_did_what_is_predicted(slug, texts, target_folder):
    """Round by round, drafts too. An engine counts drafts accepted past the end: K - 1 more tokens of text predict them all."""
    run, K = SLUGS[slug], SLUGS[slug]["steps"]
    drafter = drafter_of(run, target_folder)
    for name, (T, capture) in texts.items():
        hits = e3.chain_hits(drafter, capture, K)
        assert [r[2] for r in ROUNDS[slug][name]] == rounds_of(drafter, capture, T, K)
        for row, drafts, accepted, after in ROUNDS[slug][name]:
            assert drafts[: accepted + 1] == hits.guess[: accepted + 1, row].tolist()
            if row + 2 + accepted < len(capture.token_ids):
                assert after == capture.token_ids[row + 2 + accepted]


def test_the_rule_on_the_end_of_a_request_is_needed_and_no_longer(texts, target_folder):
    """With no token behind the text, drafts accepted past its end are missed; K - 1 of them are enough."""
    short = 0
    for slug in ("healthy_k3", "healthy_k5"):
        K, drafter = SLUGS[slug]["steps"], drafter_of(SLUGS[slug], target_folder)
        for name, (T, capture) in texts.items():
            engine, streams = [r[2] for r in ROUNDS[slug][name]], {n: capture.stream(n) for n in SLUGS[slug]["streams"]}
            for more in (K - 1, 0):
                n = T + more
                cut = {label: rows[:n] for label, rows in streams.items()}
                text = capture.replace(token_ids=capture.token_ids[:n], loss_mask=capture.loss_mask[:n], streams=cut)
                same = rounds_of(drafter, text, T, K) == engine
                assert same or not more
                short += not same
    assert short > 0


def test_prefill_in_chunks_feeds_a_wrong_token(texts, target_folder):
    """vLLM 0.32.0 embeds the prompt's last token at the end of a chunk; feeding that by hand gives its rounds."""
    run, drafter = RUNS["chunked"], drafter_of(RUNS["chunked"], target_folder)
    assert run["misfed"] and not any(other["misfed"] for other in RUNS["runs"])
    assert ROUNDS[run["slug"]] != ROUNDS["healthy_k3"]  # the same but for the chunks: it does change what is drafted
    for name, (T, capture) in texts.items():
        ids, P = capture.token_ids.clone(), int(capture.loss_mask.int().argmax())
        ids[[row + 1 for row in run["misfed"].get(name, [])]] = int(ids[P - 1])
        assert rounds_of(drafter, capture.replace(token_ids=ids), T, run["steps"]) == [r[2] for r in ROUNDS[run["slug"]][name]]


@pytest.mark.parametrize("slug", list(SLUGS))
def test_engine_tap_and_log_count_the_same(slug):
    run, K = SLUGS[slug], SLUGS[slug]["steps"]
    total = np.array(list(run["requests"].values())).sum(0)
    at_least = total[::-1].cumsum()[::-1][1:].tolist()
    assert run["counters"]["rounds"] == total.sum() and run["counters"]["drafted"] == K * total.sum()
    assert run["counters"]["accepted_per_position"] == at_least
    for name, rounds in ROUNDS[slug].items():
        assert np.bincount([r[2] for r in rounds], minlength=K + 1).tolist() == run["requests"][name]
    (logged,) = e3.read_served(SERVING / f"log_{slug}.txt")
    assert (logged.steps, logged.rounds, logged.accepted) == (K, run["counters"]["rounds"], run["counters"]["accepted"])
    assert np.abs(np.array(logged.positions) - at_least).max() <= 1  # rates in the log have three digits


def test_results_open_and_agree():
    served, predicted = e3.read_served(SERVING / "runs.json"), json.loads((SERVING / "predicted.json").read_text())
    assert [(s.name, s.steps, s.rounds) for s in served] == [
        (r["name"], r["steps"], r["counters"]["rounds"]) for r in RUNS["runs"]
    ]
    assert {r["slug"]: r["rounds"] for r in predicted["runs"]} == {s: run["counters"]["rounds"] for s, run in SLUGS.items()}


@pytest.mark.parametrize("slug", ["healthy_k3", "embedding_fed_as_served_k3"])
def test_rows_that_vllm_fed_are_the_targets(slug, live_target):
    streams = SLUGS[slug]["streams"]
    for fed in e3.read_captures(SERVING / "captures" / slug):
        P = int(fed.loss_mask.int().argmax())
        true = e3.record(live_target, fed.token_ids, P, streams).in_slots(streams)
        for slot in fed.streams:
            a, b = fed.stream(slot), true.stream(slot)[: len(fed.stream(slot))]
            assert ((a - b).norm(dim=1) / b.norm(dim=1)).max() < 1e-5
