"""What a page for others must not hold: paths of one machine, names of its people and of the machine itself, tokens.

A folder that somebody gave keeps its own name (`…/my-drafter`); all that leads to it goes. A user's name is only ever looked
for inside paths: as a word it may be any word.
"""

import html
import json
import re
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
OWN = (Path(sys.prefix), Path(__file__).resolve().parents[2])  # folders of this installation
BEFORE, AFTER = r"(?<![\w.~…-])", r"(?![\w-])"  # a path stands alone: /data/x is not a part of /data/xy or of old/data/x

# Tokens, whole: Hugging Face, OpenAI's form (many others use it), GitHub, Slack, AWS, and whatever follows "Bearer". Each
# needs a length or a digit that no identifier has (`hf_hub_download`, `sk-learn`).
TOKENS = (
    (r"\bhf_[A-Za-z0-9]{16,}\b", "[removed]"),
    (r"\bsk-(?=[\w-]*\d)[\w-]{16,}", "[removed]"),
    (r"\b(?:gh[pousr]_|github_pat_)\w{20,}", "[removed]"),
    (r"\bxox[abeprs]-[\w-]{10,}", "[removed]"),
    (r"\bAKIA[0-9A-Z]{16}\b", "[removed]"),
    (r"\bBearer\s+(?!\[)[\w.~+/=-]{8,}", "Bearer [removed]"),
)

# Homes of people, wherever the text came from. A name with a space counts where a separator follows it.
HOMES = (
    (BEFORE + r"/home/[^/\s\"'<>:,;()\[\]]+", "~"),
    (BEFORE + r"/Users/(?:[^/\n\"'<>:]*[^/\s\"'<>:](?=/)|[^/\s\"'<>:,;()\[\]]+)", "~"),
    (BEFORE + r"[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/)(?:[^\\/\n\"'<>:]*[^\\/\s\"'<>:](?=[\\/])|[^\\/\s\"'<>:,;()\[\]]+)", "~"),
)

# Temporary files; a kernel's cells are such files in warnings.
TEMPORARY = (
    (r"(?:/private)?/(?:tmp|var/folders/\w+/\w+/T)/ipykernel_\d+/\d+\.py", "[cell]"),
    (BEFORE + r"(?:/private)?/(?:tmp|var/tmp|var/folders/\w+/\w+/T)/[^/\s\"'<>:,;()\[\]]+", "[temp]"),
)


class Scrubber:
    """Takes out of text what belongs to one machine. `given`: paths that were given, `own`: folders of this installation."""

    def __init__(self, given: Iterable[Path], own: Iterable[Path] = OWN, home: Path | None = None, host: str | None = None):
        homes = both_forms([home or Path.home()])
        named: dict[str, str] = {}
        for path in both_forms(given):
            named[str(path)] = f"…/{path.name}"
            if not any(home in path.parents for home in homes):
                named |= {str(above): "…" for above in path.parents if len(above.parts) > 2 and str(above) not in named}
        named |= {str(path): f"…/{path.name}" for path in both_forms(own) if len(path.parts) > 2}
        named |= {str(path): "~" for path in homes if len(path.parts) > 1}
        rules = [rule for path in sorted(named, key=len, reverse=True) for rule in _spellings(path, named[path])]
        temp = [(BEFORE + re.escape(tempfile.gettempdir()) + r"/[^/\s\"'<>:,;()\[\]]+", "[temp]")]
        rules += [*TEMPORARY, *temp, *HOMES, *_host_rules(socket.gethostname() if host is None else host), *TOKENS]
        self.rules = [(re.compile(pattern), replacement) for pattern, replacement in rules]

    def text(self, text: str) -> str:
        """`text` without them. Colour codes stay, unless one stands in the middle of what must go."""
        done = self._apply(text)
        if "\x1b" not in text:
            return done
        wanted = self._apply(ANSI.sub("", text))
        return done if ANSI.sub("", done) == wanted else wanted

    def _apply(self, text: str) -> str:
        for pattern, replacement in self.rules:
            text = pattern.sub(lambda match, literal=replacement: literal, text)
        return text

    def all(self, value):
        """The same for every text inside a JSON value: a notebook, a table. Pictures are left as they are."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.all(item) for item in value]
        if isinstance(value, dict):
            return type(value)({key: item if _is_picture(key) else self.all(item) for key, item in value.items()})
        return value


def both_forms(paths: Iterable[Path]) -> list[Path]:
    """Each path made absolute, as it was written and with symbolic links followed."""
    return [form for path in paths for form in dict.fromkeys([path.expanduser().absolute(), path.expanduser().resolve()])]


def _is_picture(key: str) -> bool:
    return key.startswith("image/") and key != "image/svg+xml"


def _spellings(path: str, replacement: str) -> list[tuple[str, str]]:
    """A path as it is, and as HTML, Python, JSON and addresses spell it, each with its replacement in a like spelling."""
    ways = (
        (quote, str),
        (lambda s: json.dumps(s)[1:-1], _quoted),
        (_quoted, _quoted),
        (html.escape, html.escape),
        (str, str),
    )
    spelled = {there(path): here(replacement) for there, here in ways}
    return [(BEFORE + re.escape(text) + AFTER, shown) for text, shown in spelled.items()]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _host_rules(host: str) -> list[tuple[str, str]]:
    """The machine's name: anywhere when it looks like one (a digit, a hyphen, a dot), else only where a host must stand."""
    rules = []
    for name in sorted({host, host.split(".")[0]} - {"", "localhost"}, key=len, reverse=True):
        spelled = re.escape(name)
        rules.append((rf"[\w.-]+@{spelled}{AFTER}", "[user]@[host]"))
        if len(name) >= 6 and re.search(r"[\d.-]", name):
            rules.append((rf"(?<![\w.-]){spelled}{AFTER}", "[host]"))
        else:
            rules.append((rf"(?<=//){spelled}(?=[:/])|(?<![\w.-]){spelled}(?=:\d)", "[host]"))
    return rules
