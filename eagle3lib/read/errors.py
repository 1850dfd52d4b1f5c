"""The one error that this library raises at its boundaries: a file, a field or an argument that is not what it must be."""


class InputError(ValueError):
    """Bad input. One sentence: which file or field, what was found, what was expected, what to do."""


class BrokenError(InputError):
    """A checkpoint whose own files contradict each other: right where it lies, wrong in what it holds. `part`: what of it."""

    def __init__(self, message: str, part: str = "weights"):
        super().__init__(message)
        self.part = part
