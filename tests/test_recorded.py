"""Is what was recorded enough: each thing is said to be there only when it is."""

import numpy as np
import pytest
import tiny
from test_states import live

import eagle3lib as e3
from eagle3lib.read.served import Served


@pytest.fixture(scope="module")
def ckpt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    return e3.open_checkpoint(tiny.write_drafter(folder / "drafter"), target=tiny.write_target(folder / "target"))


def there(*given, **more):
    return e3.what_is_recorded(*given, **more)["is it there"].to_dict()


def test_nothing(ckpt):
    assert set(there(ckpt).values()) == {"no"}


def test_everything(ckpt):
    captures = live(ckpt.target.path, samples=2)
    run = Served("log", 3, 9, 4, 1.44, {"s0": np.array([5, 4, 0, 0])}, "log")
    told = there(ckpt, captures * 12, [c.in_slots((2, 3, 4)) for c in captures], [run], "--flags", [object()])
    assert set(told.values()) == {"yes"}


def test_what_is_lacking_is_said(ckpt):
    captures = live(ckpt.target.path, samples=2)
    slots = e3.what_is_recorded(ckpt, [c.in_slots((2, 3, 4)) for c in captures])
    assert "nobody says which streams" in slots["what is lacking"]["reference states: streams"]
    few = e3.what_is_recorded(ckpt, [c.replace(streams={n: c.streams[n] for n in (0, 2, 3)}) for c in captures])
    assert few["what is lacking"]["reference states: streams"].startswith("r_4, which the drafter is configured for")
    some = e3.what_is_recorded(
        ckpt, [c.replace(streams={n: c.streams[n] for n in (0, 2, 3, 4)}, last=None, last_kind="none") for c in captures]
    )
    assert some["what is lacking"]["reference states: streams"] == "not judged: r_1, r_5, r_6"
    assert some["is it there"]["reference states: the last state"] == "no"
    assert some["is it there"]["reference states: prompts"] == "partly"
    everything = [c.replace(loss_mask=c.loss_mask | True) for c in captures]
    assert there(ckpt, everything)["reference states: who wrote what"] == "no"
    other = [c.replace(token_ids=c.token_ids.flip(0)).in_slots((2, 3, 4)) for c in captures]
    assert there(ckpt, captures, other)["the same tokens on both sides"] == "no"
    mean = Served("log", None, None, None, 1.4, None, "log")
    total = Served("log", 3, 9, 4, 1.44, None, "log")
    assert "a mean only" in e3.what_is_recorded(ckpt, logs=[mean])["what is lacking"]["the server's counts"]
    assert "not by request" in e3.what_is_recorded(ckpt, logs=[mean, total])["what is lacking"]["the server's counts"]
