"""What a user did that a run can't go on with, in one paragraph."""

LONGEST_VALUE, LONGEST_PARAGRAPH = 300, 1400  # characters


def printable(value: object, longest: int = LONGEST_VALUE) -> str:
    """A value as one short line: what can't be printed is written as in Python, and what is too long is cut."""
    try:
        text = str(value)
    except ValueError:  # a whole number of thousands of digits
        text = f"a {type(value).__name__}"
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def paragraph(text: str) -> str:
    """The text in one line that a terminal shows as it is."""
    return printable(" ".join(text.split()), LONGEST_PARAGRAPH)


class UserError(ValueError):
    """A wrong option, file or combination, told as: key, value, what is allowed, where to look.

    It ends a run with exit code 1 and this text alone; `HYDRA_FULL_ERROR=1` adds the traceback.
    """

    def __init__(self, problem: str, *, key: str | None = None, value: object = None, see: str | None = None):
        given = "" if key is None or value is None else f"={printable(value)}"
        where = f"{printable(key)}{given}: " if key else ""
        super().__init__(f"{where}{problem}" + (f" (see: {see})" if see else ""))
        self.problem, self.key, self.value, self.see = problem, key, value, see


class NonFiniteError(ArithmeticError):
    """A loss or a prediction that nothing can be done with."""
