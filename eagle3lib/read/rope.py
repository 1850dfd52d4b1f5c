"""Rotary positions, settled: what every spelling of them comes down to."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rope:
    """Rotary positions, settled: angle of pair i at position p is `p * inv_freq[i]`; cos and sin are multiplied by `gain`."""

    inv_freq: tuple[float, ...]  # [rotary width / 2], radians a position
    gain: float = 1.0
    about: str = ""  # how it was spelled, for people
    upto: int | None = None  # so only for positions below this: beyond, the spelling means other frequencies

    @classmethod
    def plain(cls, base: float, width: int) -> "Rope":
        """`base ** (-2i / width)` for a rotary width: RoFormer, arXiv 2104.09864, section 3.4.2."""
        inv_freq = tuple(base ** (-2 * i / width) for i in range(width // 2))
        return cls(inv_freq, about=f"plain, base {base:g}")

    def linear(self, factor: float) -> "Rope":
        """Positions divided by `factor` (transformers `rope_type: linear`)."""
        return replace(self, inv_freq=tuple(f / factor for f in self.inv_freq), about=f"{self.about}, linear {factor:g}")

    def llama3(self, factor: float, low: float, high: float, trained: int) -> "Rope":
        """Slow pairs are divided by `factor`, fast ones kept, those between blended (transformers `rope_type: llama3`).

        `low` and `high` bound the number of turns in `trained` positions: `low_freq_factor`, `high_freq_factor`,
        `original_max_position_embeddings` in config.json.
        """

        def scaled(f: float) -> float:
            turns = trained * f / (2 * math.pi)
            kept = min(1.0, max(0.0, (turns - low) / (high - low)))
            return kept * f + (1 - kept) * f / factor

        return replace(self, inv_freq=tuple(map(scaled, self.inv_freq)), about=f"{self.about}, llama3 {factor:g}")

    def yarn(self, factor: float, trained: int, fast: float, slow: float, whole: bool, gain: float) -> "Rope":
        """YaRN (arXiv 2309.00071): pairs that turn often in `trained` positions are kept, slow ones divided by `factor`.

        `fast` and `slow`: `beta_fast` and `beta_slow`, turns between which the two are blended along the pair's number; `whole`:
        the numbers are rounded outwards first (`truncate`); `gain`: on cos and sin. As transformers `rope_type: yarn`.
        """
        half = len(self.inv_freq)
        base = self.inv_freq[1] ** -half  # inv_freq[1] is base ** (-1 / half)

        def pair_of(turns: float) -> float:
            return half * math.log(trained / (turns * 2 * math.pi)) / math.log(base)

        first, last = pair_of(fast), pair_of(slow)
        first, last = (math.floor(first), math.ceil(last)) if whole else (first, last)
        first, last = max(first, 0), min(last, 2 * half - 1)
        span = (last - first) or 0.001
        kept = [1 - min(1.0, max(0.0, (i - first) / span)) for i in range(half)]
        inv_freq = tuple(k * f + (1 - k) * f / factor for k, f in zip(kept, self.inv_freq, strict=True))
        return replace(self, inv_freq=inv_freq, gain=gain, about=f"{self.about}, yarn {factor:g}, gain {gain:.4g}")


def yarn_gain(factor: float, mscale: float = 1.0) -> float:
    """`0.1 mscale ln(factor) + 1`: what cos and sin, or scores, are multiplied by (arXiv 2309.00071, equation 22)."""
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0
