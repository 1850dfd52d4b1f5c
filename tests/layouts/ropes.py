"""What each kind of rotary scaling comes to, written down once more from the papers, so that the library is not its own judge."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Wanted:
    """Angles a position of each pair, the factor on cos and sin, and up to which position that holds."""

    inv_freq: tuple[float, ...]
    gain: float = 1.0
    upto: int | None = None


def plain(base: float, width: int) -> Wanted:
    """RoFormer (arXiv 2104.09864); also mrope for text, whose three positions are one."""
    return Wanted(tuple(1 / base ** (2 * i / width) for i in range(width // 2)))


def linear(base: float, width: int, factor: float) -> Wanted:
    return Wanted(tuple(f / factor for f in plain(base, width).inv_freq))


def dynamic(base: float, width: int, upto: int) -> Wanted:
    """Plain as long as no position is beyond `max_position_embeddings`."""
    return replace(plain(base, width), upto=upto)


def llama3(base: float, width: int, factor: float, low: float = 1.0, high: float = 4.0, trained: int = 8192) -> Wanted:
    """Wavelengths above trained / low are stretched, those below trained / high kept, others blended (Llama 3.1)."""

    def one(f: float) -> float:
        wavelength = 2 * math.pi / f
        if wavelength > trained / low:
            return f / factor
        if wavelength < trained / high:
            return f
        share = (trained / wavelength - low) / (high - low)
        return (1 - share) * f / factor + share * f

    return Wanted(tuple(one(f) for f in plain(base, width).inv_freq))


def yarn(
    base: float, width: int, factor: float, trained: int, fast: float = 32, slow: float = 1, gain: float | None = None,
    whole: bool = True,
) -> Wanted:  # fmt: skip
    """YaRN (arXiv 2309.00071, section 3.2): a ramp over the pairs' numbers between `fast` and `slow` turns in `trained`
    positions. `gain` None: 0.1 ln(factor) + 1, section 3.4.
    """
    ends = [width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow)]
    first, last = (math.floor(ends[0]), math.ceil(ends[1])) if whole else ends
    first, last = max(first, 0), min(last, width - 1)
    last += 0.001 * (first == last)
    found = []
    for i, f in enumerate(plain(base, width).inv_freq):
        slowed = min(max((i - first) / (last - first), 0), 1)
        found.append(slowed * f / factor + (1 - slowed) * f)
    return Wanted(tuple(found), magnified(factor) if gain is None else gain)


def magnified(factor: float, mscale: float = 1.0) -> float:
    """YaRN's m(s, k) = 0.1 k ln s + 1."""
    return 0.1 * mscale * math.log(factor) + 1
