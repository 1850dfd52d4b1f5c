"""Where a drafter runs, in which precision, how much it may hold at once, and what is said where that is too much.

Exactness in float32 needs TF32 off for matrix products: PyTorch's default, which nothing here changes. Nothing uses cuDNN.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from ..read.errors import InputError

CPU_BLOCK = 2**23  # numbers held at once on the CPU: 32 MB in float32, as a cache holds; 256 MB take two to three times as long
SHARE = 0.2  # of a GPU's free memory that one intermediate result may take: three or four of that size are held at once
MOST_BLOCK = 2**30  # numbers: more gain no speed, and from 2**31 on operations count places in other kernels
PARTS = 64  # that work is divided into, at most, where memory runs out
SPENT = ("out of memory", "DefaultCPUAllocator", "ALLOC_FAILED")  # in the errors of PyTorch's allocators, and of cuBLAS's handles
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def best_device() -> str:
    """`cuda` where PyTorch finds a usable GPU, else `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def dtype_of(name: str | torch.dtype) -> torch.dtype:
    """A dtype by its name. Raises InputError for another: the drafter runs in these, or in float64."""
    found = DTYPES.get(name) if isinstance(name, str) else name
    if found not in (*DTYPES.values(), torch.float64):
        raise InputError(f"dtype: {name!r}, expected one of {', '.join(DTYPES)}")
    return found


def device_of(name: str | torch.device) -> torch.device:
    """A device by its name. Raises InputError for one that is none, or that this machine has not."""
    try:
        found = torch.device(name)
        return torch.empty(1, device=found).device  # with its number
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise InputError(
            f"device: {str(name)!r} cannot be used ({why}); expected cpu, or cuda where PyTorch finds a GPU"
        ) from None


def block_size(device: torch.device) -> int:
    """How many float32 numbers one intermediate result may hold: a share of what is free on a GPU, a constant on the CPU."""
    if device.type != "cuda":
        return CPU_BLOCK
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # PyTorch's own, to be used again
    return min(max(2**20, int(free * SHARE / 4)), MOST_BLOCK)


class MemoryShortError(InputError):
    """What was asked for does not fit into the memory there is."""


@contextmanager
def enough_memory(doing: str, less: str) -> Iterator[None]:
    """Raises MemoryShortError where an allocator gives up within: what was asked for, what was free, and what would fit.

    `doing`: as in "drafting"; `less`: what needs less memory, before a smaller dtype and the CPU are advised.
    """
    try:
        yield
    except RuntimeError as error:
        told = " ".join(str(error).split())
        if not any(sign in told for sign in SPENT):
            raise
        asked = re.search(r"ried to allocate (\d[\d.]* ?\w+)", told)
        free = re.search(r"capacity of (\S+ \w+) of which (\S+ \w+) is free", told)
        told = f"{asked[1]} more were asked for" if asked else str(error).splitlines()[0]
        had = f", {free[2]} of {free[1]} were free" if free else ""
        where = "a machine with more" if "DefaultCPU" in str(error) else "--device cpu"
        raise MemoryShortError(f"memory ran out in {doing}: {told}{had}; give {less}, --dtype bfloat16, or {where}") from None


T = TypeVar("T")


def in_parts(work: Callable[[int], T], doing: str, less: str, most: int = PARTS) -> T:
    """`work(1)`; where memory runs out, `work(2)`: the same in two parts, and so on, up to `most`. Raises as `enough_memory`."""
    parts = 1
    while True:
        try:
            with enough_memory(doing, less):
                return work(parts)
        except MemoryShortError:
            if parts >= most:
                raise
        parts = min(2 * parts, most)  # out of the handler: what the failed try held is free by now
