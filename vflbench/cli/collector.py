"""Python's search for garbage, put off while modules are loaded: they leave none, and it would look through all of them
again and again, and once more at the end of the process: 0.4 of the 1.5 s that torch takes.
"""

import atexit
import gc


def put_off() -> None:
    """Until `begin`, and for good for what is there at the end of the process, whose memory the system takes back."""
    gc.disable()
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def begin() -> None:
    """Search from now on, but not through what has been loaded so far. Does nothing where it was not put off."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
