"""Options of a component: a dataclass that checks types and ranges when it is made.

`@options` is a pydantic dataclass, strict (no "3" for 3, no true for 1) and closed (no unknown name), so the same check
holds for YAML, the command line and Python. `build.py` turns what it refuses into one paragraph.
"""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

options = dataclass(kw_only=True, config=ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True))

Count = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, lt=1)]  # the open interval (0, 1)
