"""The config groups, by name: what is chosen from. `build` has their base classes, which need torch."""

SINGLE_NAMES = ("dataset", "model", "protocol", "engine", "optimizer")
"""Groups of which one is chosen: its options stand directly under the group's name."""

KEYED_NAMES = ("defense", "attack", "adversary", "logger")
"""Groups of which several can be chosen: the options of each choice stand under its name."""

COMPONENTS = (*SINGLE_NAMES, *KEYED_NAMES)
GROUPS = (*COMPONENTS, "experiment")
