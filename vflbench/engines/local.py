"""All parties in one process."""

from vflbench.engines.base import Engine
from vflbench.options import options


@options
class Local(Engine):
    """Parties are objects in one process: a message arrives as it was sent."""
