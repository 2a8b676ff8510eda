"""What a user did that a run can't go on with, in one paragraph."""


class UserError(ValueError):
    """A wrong option, file or combination, told as: key, value, what is allowed, where to look.

    It ends a run with exit code 1 and this text alone; `HYDRA_FULL_ERROR=1` adds the traceback.
    """

    def __init__(self, problem: str, *, key: str | None = None, value: object = None, see: str | None = None):
        where = f"{key}={value}: " if key is not None and value is not None else f"{key}: " if key else ""
        super().__init__(f"{where}{problem}" + (f" (see: {see})" if see else ""))
        self.problem, self.key, self.value, self.see = problem, key, value, see


class NonFiniteError(ArithmeticError):
    """A loss or a prediction that nothing can be done with."""
