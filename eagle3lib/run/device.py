"""Where a drafter runs, in which precision, and how much it may hold at once."""

import torch

from ..read.errors import InputError

CPU_BLOCK = 2**26  # numbers held at once on the CPU: 256 MB in float32
SHARE = 0.2  # of a GPU's free memory that one intermediate result may take
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
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise InputError(
            f"device: {str(name)!r} cannot be used ({why}); expected cpu, or cuda where PyTorch finds a GPU"
        ) from None
    return found


def block_size(device: torch.device) -> int:
    """How many float32 numbers one intermediate result may hold: a share of what is free on a GPU, a constant on the CPU."""
    if device.type != "cuda":
        return CPU_BLOCK
    free, _ = torch.cuda.mem_get_info(device)
    return max(2**20, int(free * SHARE / 4))
