"""Say what torch would download, before it does, and whether NVIDIA's CUDA packages come with it. Never fails.

    python .ci/torch_size.py [--index-url URL]

Asks a dry run of this Python's pip. Since pip downloads every wheel even then, its download step is left out: a private
method, so where a pip has no such method, or its index cannot give a wheel's metadata alone, the size stays unknown.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, url2pathname, urlopen

WITHOUT_DOWNLOADS = """
import sys
from pip._internal.operations.prepare import RequirementPreparer
RequirementPreparer.prepare_linked_requirements_more  # raises AttributeError where there is none
RequirementPreparer.prepare_linked_requirements_more = lambda *args, **kwargs: None
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
DRY_RUN = ["install", "--dry-run", "--quiet", "--report", "-", "--use-feature=fast-deps", "-c", "constraints.txt", "torch"]


def would_install(options: list[str]) -> list[dict]:
    """The packages that pip would install for torch, as its installation report describes them."""
    command = [sys.executable, "-c", WITHOUT_DOWNLOADS, *DRY_RUN, *options]
    report = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return json.loads(report)["install"]


def size(package: dict) -> int:
    """Bytes of the package's archive: its size on disk, or what a HEAD request says."""
    url = package["download_info"]["url"]
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path)).stat().st_size
    with urlopen(Request(url, method="HEAD"), timeout=20) as answer:
        return int(answer.headers["Content-Length"])


def describe(packages: list[dict]) -> str:
    """One or two lines about them."""
    versions = {package["metadata"]["name"].lower(): package["metadata"]["version"] for package in packages}
    if "torch" not in versions:
        return "torch: installed already"
    try:
        with ThreadPoolExecutor(8) as pool:
            line = f"torch {versions.pop('torch')}: {sum(pool.map(size, packages)) / 1e6:,.0f} MB"
    except (OSError, TypeError, ValueError):
        line = "torch: size unknown"
    cuda = sum(name.startswith(("nvidia-", "cuda-")) for name in versions)
    if versions:
        line += f" with what it needs, {cuda or 'no'} CUDA packages (nvidia-*) among that"
    if cuda:
        line += "\nThe CPU build is far smaller: make TORCH_INDEX=<PyTorch's CPU index, see its installation page> ..."
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index-url")
    index = parser.parse_args().index_url
    try:
        print(describe(would_install(["--no-deps", "--index-url", index] if index else [])))
    except (subprocess.SubprocessError, OSError, ValueError, KeyError):
        print("torch: size unknown")


if __name__ == "__main__":
    main()
