"""Does each fault do what its row says? Accept length at K = 3 as it should be and as it is, paired over prompts.

    PYTHONPATH=tests python -m battery.sight        all cases that have an effect; into build/battery/effects.json, resumable

A case must be what `sight` says of it: "visible" costs more than noise, "equal" costs nothing, "needs" is either of the two
or lies between them.
"""

import json
import sys
from dataclasses import asdict

from tqdm import tqdm

from eagle3lib.read.errors import InputError

from .base import RECORDED, Effect
from .cases import Case, all_cases

KEPT = RECORDED / "effects.json"


def measured(case: Case) -> Effect | str | None:
    """The effect; a sentence where the library refuses to run it; None where it is not about accept length."""
    try:
        return case.effect() if case.effect else None
    except InputError as error:
        return f"refused: {error}"


def as_said(case: Case, effect: Effect | str | None) -> bool:
    """Whether `sight` is what was measured. What the library refuses to run is seen by that."""
    if effect is None or case.sight == "needs":
        return True
    return case.sight == ("visible" if isinstance(effect, str) else effect.sight())


def main() -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    cases = [case for case in all_cases() if case.effect]
    for case in tqdm([case for case in cases if case.name not in kept], desc="effects", unit="case"):
        effect = measured(case)
        kept[case.name] = effect if isinstance(effect, str) else asdict(effect)
        KEPT.write_text(json.dumps(kept, indent=1))
    wrong = 0
    for case in cases:
        found = kept[case.name]
        effect = found if isinstance(found, str) else Effect(**found)
        if not as_said(case, effect):
            wrong += 1
            told = (
                effect
                if isinstance(effect, str)
                else f"{effect.should:.3f} -> {effect.now:.3f}, p {effect.p:.2g}, {effect.sight()}"
            )
            print(f"{case.name}: said {case.sight}; {told}")
    print(f"{len(cases)} cases, {wrong} are not what they say")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
