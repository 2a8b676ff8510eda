"""What a user did that a run can't go on with, in one paragraph."""


class UserError(ValueError):
    """A wrong option, file or combination, told as: key, value, what is allowed, where to look.

    It ends a run with exit code 1 and this text alone; `HYDRA_FULL_ERROR=1` adds the traceback.
    """

    def __init__(self, problem: str, *, key: str | None = None, value: object = None, see: str | None = None):
        name = shown(key) if key is not None else None
        where = f"{name}={shown(value)}: " if key is not None and value is not None else f"{name}: " if key else ""
        super().__init__(f"{where}{problem}" + (f" (see: {see})" if see else ""))
        self.problem, self.key, self.value, self.see = problem, key, value, see


def shown(value: object, longest: int = 300) -> str:
    """A value as a message can print it: in one line of bounded length, with signs that don't print escaped."""
    try:
        text = str(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a number of thousands of digits"
    text = text if len(text) <= longest else f"{text[:longest]}... ({len(text):,} characters)"
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def paragraph(text: str) -> str:
    """A text in one line that a terminal shows as it is."""
    return shown(" ".join(text.split()), 1300)


class NonFiniteError(ArithmeticError):
    """A loss or a prediction that nothing can be done with."""
