"""Launch lines: what is drafted for what was asked, and a line that fires and one that does not for every rule."""

import json
import random

import pytest
import tiny

import eagle3lib as e3
from eagle3lib.judge.flags import RULES, check_flags, launch_line
from eagle3lib.judge.heads import LONGEST
from eagle3lib.read.errors import InputError
from eagle3lib.read.flags import SPELLINGS, read_flags

BASE = "python -m sglang.launch_server --model-path T --speculative-draft-model-path D --speculative-algorithm EAGLE3"
CHAIN = f"{BASE} --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
TREE = f"{BASE} --speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"


def vllm(**config) -> str:
    fields = {"method": '"eagle3"', "model": '"D"', "num_speculative_tokens": "3", **config}
    inner = ", ".join(f'"{key}": {value}' for key, value in fields.items() if value)
    return f"vllm serve T --speculative-config '{{{inner}}}'"


@pytest.mark.parametrize(
    "line, engine, algorithm, steps, topk, verified, tree",
    [
        (CHAIN, "SGLang", "EAGLE3", 3, 1, 4, False),
        (CHAIN.replace("tokens 4", "tokens=16"), "SGLang", "EAGLE3", 3, 1, 4, False),
        (CHAIN.replace("-num-draft-tokens", "-num-draft").replace("-algorithm", "-algo"), "SGLang", "EAGLE3", 3, 1, 4, False),
        (CHAIN.replace(" --spec", " \\\n  --spec"), "SGLang", "EAGLE3", 3, 1, 4, False),
        (CHAIN.replace(" --spec", "\n- --spec"), "SGLang", "EAGLE3", 3, 1, 4, False),
        (CHAIN + " --speculative-num-steps 5", "SGLang", "EAGLE3", 5, 1, 6, False),
        (TREE, "SGLang", "EAGLE3", 5, 4, 8, True),
        (BASE, "SGLang", "EAGLE3", None, None, None, False),
        (vllm(), "vLLM", "eagle3", 3, 1, 4, False),
        ("vllm serve T -sc.method eagle3 --speculative_config.num_speculative_tokens=5", "vLLM", "eagle3", 5, 1, 6, False),
        ("vllm serve T --spec-method eagle3 --spec-model D --spec-tokens 2", "vLLM", "eagle3", 2, 1, 3, False),
        ('LLM(model="T", speculative_config={"method": "eagle3", "model": "D", "num_speculative_tokens": 4})', "vLLM", "eagle3",
         4, 1, 5, False),
        ("speculative_config:\n  decoding_type: Eagle\n  max_draft_len: 3", "TensorRT-LLM", "Eagle", 3, 1, 4, False),
        ("speculative_config: {decoding_type: Eagle3, max_draft_len: 4, use_dynamic_tree: true, max_total_draft_tokens: 12}",
         "TensorRT-LLM", "Eagle3", 4, None, 13, True),
    ],
)  # fmt: skip
def test_read(line, engine, algorithm, steps, topk, verified, tree):
    f = read_flags(line)
    assert (f.engine, f.algorithm, f.steps, f.topk, f.verified, f.tree) == (engine, algorithm, steps, topk, verified, tree)


def test_the_published_case_drafts_one_token():
    f = read_flags(CHAIN.replace("steps 3", "steps 1").replace("tokens 4", "tokens 16"))
    assert (f.steps, f.verified, f.asked["draft_tokens"]) == (1, 2, 16)
    worst = check_flags(f)[0]
    assert worst.level == "fault"
    assert "asked for 16 draft tokens, but --speculative-num-steps 1 with top-k 1 drafts K = 1" in worst.what
    assert worst.change == launch_line("SGLang", 3)


def test_what_is_advised_is_sound():
    for engine in ("SGLang", "vLLM", "TensorRT-LLM"):
        drafter = " --speculative-draft-model-path D" if engine == "SGLang" else ""
        f = read_flags(launch_line(engine, 3) + drafter)
        assert (f.engine, f.steps, f.verified) == (engine, 3, 4)
        assert [x.level for x in check_flags(f)] == ["ok"]


@pytest.mark.parametrize(
    "line, said",
    [
        ("vllm serve T --port 8000", "no speculative decoding"),
        ("trtllm-serve T --extra_llm_api_options c.yaml", "names a YAML file, which is not read"),
        ("", "no speculative decoding"),
        (CHAIN + " 'open", "No closing quotation"),
        (BASE + " --speculative-num-steps", "has no value"),
        (BASE + " --speculative-num-steps three", "no whole number"),
        (BASE + " --speculative-num-steps -1", "no whole number"),
        ("llama-server --speculative 3 --spec-type x", "no engine that this library knows"),
        (CHAIN + " --speculative-config '{}'", "SGLang and vLLM"),
        ('vllm serve T --speculative-config {"method": "eagle3"}', "no JSON object"),
        (vllm(num_speculative_tokens="0"), "no whole number"),
    ],
)
def test_bad_lines_are_one_sentence(line, said):
    with pytest.raises(InputError, match=said) as error:
        read_flags(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "architecture, told",
    [("DeepseekV3ForCausalLM", "3 steps, top-k 1 and 4 tokens"), ("Grok1ForCausalLM", "5 steps, top-k 4 and 8 tokens"),
     ("Qwen3ForCausalLM", "3 steps, top-k 1 and 4 tokens, older versions 5 steps, top-k 4 and 8 tokens")],
)  # fmt: skip
def test_what_sglang_chooses_by_itself(tmp_path, architecture, told):
    target = tiny.write_target(tmp_path / "target")
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"architectures": [architecture]}))
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter"), target)
    said = [f.what for f in check_flags(read_flags(BASE), ckpt) if "SGLang chooses" in f.what]
    assert said == [f"no --speculative-num-steps: for a {architecture} SGLang chooses {told}"]


def test_a_shallow_tree_is_told_as_shallow():
    """A tree verified with fewer nodes than it is deep was once said to reach its depth."""
    found = check_flags(read_flags(TREE.replace("tokens 8", "tokens 4")))
    assert next(f.what for f in found if f.level == "ok").endswith("accept length is at most 4")


def test_a_token_map_is_said_to_do_nothing():
    (found,) = [f for f in check_flags(read_flags(CHAIN + " --speculative-token-map f.pt")) if "token-map" in f.what]
    assert "is ignored with EAGLE3" in found.what and found.change == "leave it out"


def test_a_switched_off_simulation_is_none():
    assert not [f for f in check_flags(read_flags("SGLANG_SIMULATE_ACC_LEN=-1 " + CHAIN)) if "SIMULATE" in f.what]


def test_lengths():
    read = [
        read_flags(vllm() + f" --max-model-len {x}").asked["context"] for x in ("4096", "131_072", "32k", "32K", "auto", "-1")
    ]
    assert read == [4096, 131072, 32000, 32768, None, None]


# rule's words, a line on which it fires, one on which it does not, whether the drafter is given
CASES = [
    ("drafts K = 1: they are forced", CHAIN.replace("steps 3", "steps 1"), CHAIN, False),
    ("drafts K = 3: they are forced", CHAIN.replace("tokens 4", "tokens 9"), CHAIN, False),
    ("has only 69", TREE.replace("tokens 8", "tokens 70"), TREE.replace("tokens 8", "tokens 69"), False),
    ("drafts a tree", TREE, CHAIN, False),
    ("refuses to start", TREE + " --attention-backend trtllm_mha", CHAIN + " --attention-backend trtllm_mha", False),
    ("pages of 16", TREE + " --page-size 16", TREE + " --page-size 16 --attention-backend fa3", False),
    ("nothing is drafted", CHAIN.replace("--speculative-algorithm EAGLE3", ""), CHAIN, False),
    ("all three or none, and stops", BASE + " --speculative-num-draft-tokens 4", BASE, False),
    ("nobody can tell K", BASE, CHAIN, False),
    ("for a LlamaForCausalLM SGLang chooses 5 steps, top-k 4 and 8 tokens", BASE, CHAIN, "target"),
    ("nothing tells how large a tree", TREE.replace("--speculative-num-draft-tokens 8", ""), TREE, False),
    ("and the deepest steps", TREE.replace("tokens 8", "tokens 5"), TREE.replace("tokens 8", "tokens 6"), False),
    ("with SGLANG_ENABLE_SPEC_V2", "SGLANG_ENABLE_SPEC_V2=1 " + TREE, "SGLANG_ENABLE_SPEC_V2=0 " + TREE, False),
    ("read as 1 here", CHAIN.replace("--speculative-eagle-topk 1", ""), CHAIN, False),
    ("accept length is 1.00", CHAIN.replace("EAGLE3", "eagle"), CHAIN, True),
    ("accept length is 1.00", CHAIN.replace("EAGLE3", "EAGLE").replace(" D ", " x/eagle3-y "),
     CHAIN.replace("EAGLE3", "EAGLE").replace(" D ", " x/eagle-3b "), False),
    ("has no use for", CHAIN.replace("EAGLE3", "NGRAM"), CHAIN, True),
    ("accept threshold below 1", CHAIN + " --speculative-accept-threshold-acc 0.9",
     CHAIN + " --speculative-accept-threshold-acc 1.0", False),
    ("SIMULATE_ACC_LEN is set", "SGLANG_SIMULATE_ACC_LEN=3 " + CHAIN, CHAIN, False),
    ("is synthetic", vllm(rejection_sample_method='"synthetic"'), vllm(rejection_sample_method='"standard"'), False),
    ("is not between 1 and K + 1", vllm(synthetic_acceptance_length="4.5"), vllm(synthetic_acceptance_length="4"), False),
    ("is block", vllm(rejection_sample_method='"block"'), vllm(), False),
    ("speculative_token_tree", vllm(speculative_token_tree='"[(0,), (0, 0)]"'), vllm(), False),
    ("has no n_predict", vllm(num_speculative_tokens=""), vllm(), True),
    ("K is the drafter's n_predict", vllm(num_speculative_tokens=""), vllm(), False),
    ("no multiple", vllm(num_speculative_tokens="5"), vllm(num_speculative_tokens="4"), "n_predict"),
    ("the target's own checkpoint as one", CHAIN.replace("--speculative-draft-model-path D ", ""), CHAIN, False),
    ("names no drafter: vLLM", vllm(model=""), vllm(), False),
    ("no method", vllm(method=""), vllm(), False),
    ("method is eagle,", vllm(method='"eagle"'), vllm(), True),
    ("within --speculative-config", vllm(tensor_parallel_size="2"), vllm(), False),
    ("draft_tensor_parallel_size 2", vllm(draft_tensor_parallel_size="2") + " -tp 4",
     vllm(draft_tensor_parallel_size="2") + " -tp 2", False),
    ("parallel_drafting", vllm(parallel_drafting="true"), vllm(parallel_drafting="false"), False),
    ("per_batch_size", vllm(num_speculative_tokens_per_batch_size="[[1, 4, 3]]"), vllm(), False),
    ("probabilistic", vllm(draft_sample_method='"probabilistic"'), vllm(draft_sample_method='"greedy"'), False),
    ("switched off for good", "decoding_type: Eagle3, max_draft_len: 3, acceptance_rate_threshold: 0.5",
     "decoding_type: Eagle3, max_draft_len: 3", False),
    ("a tree is dynamic or given", "decoding_type: Eagle3, max_draft_len: 3, use_dynamic_tree: true, eagle_choices: [[0]]",
     "decoding_type: Eagle3, max_draft_len: 3, eagle_choices: [[0]]", False),
    ("without dynamic_tree_max_topK", "decoding_type: Eagle3, max_draft_len: 3, use_dynamic_tree: true",
     "decoding_type: Eagle3, max_draft_len: 3, use_dynamic_tree: true, dynamic_tree_max_topK: 4", False),
    ("needs 3 to 12", "decoding_type: Eagle3, max_draft_len: 3, dynamic_tree_max_topK: 4, max_total_draft_tokens: 13",
     "decoding_type: Eagle3, max_draft_len: 3, dynamic_tree_max_topK: 4, max_total_draft_tokens: 12", False),
    ("without a tree", "decoding_type: Eagle3, max_draft_len: 3, max_total_draft_tokens: 16",
     "decoding_type: Eagle3, max_draft_len: 3, max_total_draft_tokens: 3", False),
    ("no max_draft_len", "decoding_type: Eagle3", "decoding_type: Eagle3, max_draft_len: 3", False),
    ("past it accept length falls", CHAIN + " --context-length 4096", CHAIN + " --context-length 2048", "positions"),
    ("read past its table", vllm() + " --max-model-len 4096", vllm() + " --max-model-len 2048", "positions"),
    ("longer than any published chain", vllm(num_speculative_tokens=str(LONGEST + 1)), vllm(num_speculative_tokens=str(LONGEST)),
     False),
    ("accept length is at most 4", CHAIN, BASE, False),
]  # fmt: skip
CONFIGS = {"n_predict": {"n_predict": 2}, "positions": {"max_position_embeddings": 2048}}


@pytest.mark.parametrize("said, fires, quiet, given", CASES)
def test_rule(said, fires, quiet, given, tmp_path):
    target = tiny.write_target(tmp_path / "target") if given == "target" else None
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", **CONFIGS.get(given, {})), target) if given else None
    for line, expected in ((fires, 1), (quiet, 0)):
        findings = [f for f in check_flags(read_flags(line), ckpt) if said in f.what]
        assert len(findings) == expected, line
        assert all(f.where == "flags" and f.evidence["source"] and (f.change or f.level == "ok") for f in findings)


def test_every_rule_has_its_case():
    assert len(CASES) == len(RULES) + 1  # one rule has two


def test_any_text_is_read_or_refused_in_one_sentence(tiny_checkpoint):
    pieces = [row[1] for row in SPELLINGS] + [
        "EAGLE3", "eagle3", "3", "0", "-1", "=", ".method", ".num_speculative_tokens", " ", " ", " ", " ", "'", '"', "\\\n", "\\",
        "{", "}", '{"method": 3}', "'{\"num_speculative_tokens\": 3, \"context\": {}}'", "[" * 3000, "9" * 5000,
        "decoding_type: ",
        "max_draft_len: ", "use_dynamic_tree: true ", "speculative_config", "SIMULATE_ACC_LEN=", "nan", "²", "\0", "\n", "_",
    ]  # fmt: skip
    draw, read = random.Random(0), 0
    for _ in range(5000):
        line = "--speculative-num-steps 2 " * draw.randint(0, 1) + "".join(draw.choices(pieces, k=draw.randint(1, 14)))
        try:
            flags = read_flags(line)
        except InputError:
            continue
        check_flags(flags)
        check_flags(flags, tiny_checkpoint)
        read += 1
    assert read > 100
