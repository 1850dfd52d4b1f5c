"""The README's figure: accept length of the demo's two drafters on the committed captures. Writes data/accept_length.png.

python data/make/figure.py
"""

from pathlib import Path

import eagle3lib as e3
from eagle3lib.show import curves, figures, readings

STEPS = 5


def main() -> None:
    captures = e3.read_captures("data/captures/heldout")

    def curve(name: str, streams: tuple[int, ...]) -> e3.Acceptance:
        ckpt = e3.open_checkpoint(f"data/drafters/{name}", target="build/target")
        drafter = e3.Drafter(ckpt, ckpt.recipe.replace(streams=streams))
        return e3.acceptance(drafter, captures, e3.Chain(STEPS))

    lengths = {
        "healthy drafter, r_2, r_15, r_27": curve("healthy", (2, 15, 27)),
        "embedding-fed drafter, fed as trained, r_0, r_2, r_15": curve("embedding_fed", (0, 2, 15)),
        "the same, fed as its config.json says, r_2, r_15, r_27": curve("embedding_fed", (2, 15, 27)),
    }
    Path("data/accept_length.png").write_bytes(curves.accept_length(lengths)._repr_png_(2 * figures.DPI))
    print(readings.accept_length(lengths, STEPS))


if __name__ == "__main__":
    main()
