"""A device that is none: its tensors say they are on it, compute in the CPU's memory, and refuse what a GPU's refuse.

While `pretended()` is open, `x.to("pretended")`, `torch.arange(3, device="pretended")` and all that comes of them are
`OnDevice` tensors. An operation that mixes them with tensors of the CPU raises, as on a GPU, but for what PyTorch allows there:
a single number beside a tensor in elementwise operations, a copy from one to the other, places on the CPU in a tensor on the
device. With a size, what its tensors hold is counted, and where that would be more, `torch.OutOfMemoryError` is raised.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretended"
_setup_privateuseone_for_python_backend(NAME)
PLACE = torch.device(NAME, 0)
aten = torch.ops.aten
COPIES = (aten.copy_.default, aten._to_copy.default)
PLACES = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default)  # after the first


class OnDevice(torch.Tensor):
    """`inner`, a tensor of the CPU, that says it is on the device."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype, device=PLACE
        )

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    def __repr__(self) -> str:
        return f"OnDevice({self.inner})"

    def tolist(self) -> list:
        return self.inner.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return Pretended.now.run(func, args, kwargs or {})


class Pretended(TorchDispatchMode):
    """The device: of `size` bytes, `held` of them taken now, `peak` at most so far."""

    now: "Pretended"

    def __init__(self, size: int | None):
        super().__init__()
        self.size, self.peak, self.refused = size, 0, 0
        self.stores: dict[int, tuple[StorageWeakRef, int]] = {}

    @property
    def held(self) -> int:
        self.stores = {place: (ref, size) for place, (ref, size) in self.stores.items() if not ref.expired()}
        return sum(size for _, size in self.stores.values())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.run(func, args, kwargs or {})

    def run(self, func, args, kwargs):
        if is_composite(func):
            with self:  # in inference mode it comes whole; its parts are what mixes
                return func.decompose(*args, **kwargs)
        if func is aten._fused_sdp_choice.default:
            return 0  # the plain way: the fused ones are a processor's own operations
        given: dict[int, OnDevice] = {}  # by what is inside: a result may be one of these itself
        beside: list = []  # tensors and generators of the CPU
        plain, named = _inside(args, given, beside), {name: _inside(x, given, beside) for name, x in kwargs.items()}
        if given and func not in COPIES:
            _check(func, args, beside)
        on_device = bool(given)
        if named.get("device") is not None:
            on_device, named["device"] = torch.device(named["device"]).type == NAME, torch.device("cpu")
        if func is aten.copy_.default:
            on_device = isinstance(args[0], OnDevice)
        found = func(*plain, **named)
        return self._outside(found, given) if on_device else found

    def _outside(self, found, given: dict[int, OnDevice]):
        if isinstance(found, torch.Tensor):
            return given[id(found)] if id(found) in given else self._placed(found)
        return type(found)(self._outside(x, given) for x in found) if isinstance(found, (list, tuple)) else found

    def _placed(self, inner: torch.Tensor) -> OnDevice:
        storage = inner.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        if self.size and (place not in self.stores or self.stores[place][0].expired()):
            free = self.size - self.held
            if size > free:
                self.refused += 1
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. GPU 0 has a total capacity of "
                    f"{self.size / 2**20:.2f} MiB of which {free / 2**20:.2f} MiB is free. Of the allocated memory the rest"
                )
            self.stores[place] = StorageWeakRef(storage), size
            self.peak = max(self.peak, self.size - free + size)
        with torch.inference_mode(False):  # within it PyTorch refuses views, by a class of one's own, of a tensor from without
            return OnDevice(inner)


def _inside(x, given: dict[int, OnDevice], beside: list):
    """`x`, an argument, with what is inside of the device's tensors in their place."""
    if isinstance(x, OnDevice):
        given[id(x.inner)] = x
        return x.inner
    if isinstance(x, (torch.Tensor, torch.Generator)):
        beside.append(x)
    return type(x)(_inside(one, given, beside) for one in x) if isinstance(x, (list, tuple)) else x


@cache
def is_composite(func) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _check(func, args, beside) -> None:
    """Raises RuntimeError where one of `beside`, on the CPU, must be on the device."""
    places = [x for x in args[1] if x is not None] if func in PLACES and isinstance(args[0], OnDevice) else []
    for x in beside:
        lone = isinstance(x, torch.Tensor) and x.ndim == 0 and (torch.Tag.pointwise in func.tags or func in PLACES)
        if not lone and not any(x is place for place in places):
            what = "generator" if isinstance(x, torch.Generator) else f"tensor {list(x.shape)}"
            raise RuntimeError(f"Expected all tensors to be on the same device, but {func} was given a {what} on the CPU")


@contextmanager
def pretended(size: int | None = None) -> Iterator[Pretended]:
    """A machine with one such device, of `size` bytes; without, nothing is counted."""
    device = Pretended(size)
    lifted = torch._C._only_lift_cpu_tensors()
    Pretended.now = device
    with ExitStack() as stack:
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=) makes it on the CPU, and copies it before our eyes
        stack.callback(torch._C._set_only_lift_cpu_tensors, lifted)
        stack.enter_context(device)
        yield device
