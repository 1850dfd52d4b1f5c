"""The one error that this library raises at its boundaries: a file, a field or an argument that is not what it must be."""


class InputError(ValueError):
    """Bad input. One sentence: which file or field, what was found, what was expected, what to do."""
