"""What went wrong, in one paragraph that helps the user."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vflbench.errors import UserError, causes, nearest, paragraph
from vflbench.places import config_folder

if TYPE_CHECKING:
    from vflbench.results.recorder import Recorder


@contextmanager
def leaving_errors(recorder: "Recorder") -> Iterator[None]:
    """While entered, an error leaves error.txt beside what the recorder has written. At the end its loggers stop."""
    try:
        yield
    except Exception as error:
        if recorder.begun:
            from vflbench.results.folder import leave_error

            leave_error(recorder.folder, describe(error) or f"{type(error).__name__}: {error}", error)
        raise
    finally:
        recorder.loggers.stop()


def describe(error: Exception) -> str | None:
    """One paragraph for a mistake of the user's; None for a fault of vflbench, whose traceback is shown."""
    text = _description(error)
    return None if text is None else paragraph(text)


def _description(error: Exception) -> str | None:
    if isinstance(error, UserError):
        return str(error)
    from_hydra = _is_hydras(error)
    if from_hydra and (ours := _user_error_behind(error)) is not None:
        option = getattr(error, "full_key", None)
        return f"{option}: {ours}" if option and ours.key == "oc.env" else str(ours)
    if isinstance(error, OSError) and error.strerror:  # no permission, disk full, a name too long
        where = "hydra.run.dir=" if _raised_by_hydra(error) else ""
        return f"{where}{error.filename or 'a file'}: {error.strerror}"
    if isinstance(error, RecursionError) and _raised_by_hydra(error):
        return "config: the configs that were chosen include each other in a circle, or are nested too deeply"
    if from_hydra or _raised_by_hydra(error):
        return _describe_hydra(error)
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        size = re.search(r"tried to allocate [\w. ]+", str(error))
        return f"there is not enough memory for this model, batch or table{f': {size[0]}' if size else ''}"
    return None


def _is_hydras(error: Exception) -> bool:
    """Whether it is one of Hydra's or OmegaConf's, neither of which need have been loaded."""
    if "omegaconf" not in sys.modules:
        return False
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    return isinstance(error, HydraException | OmegaConfBaseException)


def _user_error_behind(error: BaseException) -> UserError | None:
    """What a resolver of ours raised, which OmegaConf wraps."""
    return next((one for one in causes(error) if isinstance(one, UserError)), None)


def _raised_by_hydra(error: Exception) -> bool:
    """Whether the error came from Hydra and not from vflbench: then it concerns the command line."""
    ours, last_is_hydra, frame = str(Path(__file__).parents[1]), False, error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file.startswith(ours):
            last_is_hydra = False
        elif f"{os.sep}hydra{os.sep}" in file or f"{os.sep}omegaconf{os.sep}" in file:
            last_is_hydra = True
        frame = frame.tb_next
    return last_is_hydra


def _describe_hydra(error: Exception) -> str:
    """Hydra's message in one paragraph, and the command that helps."""
    from vflbench.cli.hints import choices, lacking_runs, nearest_options, of_your_own
    from vflbench.cli.plugins import searched
    from vflbench.cli.quoting import quoting_mistake

    folders = [config_folder(), *searched]
    text = " ".join(str(error).split()) or f"the configs can't be used ({type(error).__name__})"
    if misquoted := quoting_mistake(text, str(getattr(error, "override", None) or ""), sys.argv):
        return f"{misquoted} (see: vflbench list, vflbench train --help)"
    if unknown := re.match(r"(?:In '\w+': )?Could not override '(?P<key>[^']+)'", text):
        if two_sweeps := lacking_runs(folders, unknown["key"], sys.argv[1:]):
            return f"{unknown['key']}: {two_sweeps}"
        hint = nearest_options(folders, unknown["key"])
        return f"{unknown['key']}: there is no such option here{hint} (see: vflbench train --cfg job)"
    if missing := re.search(r"Could not (?:find|load) '(?P<group>[a-z_]+)/(?P<name>[^']+)'", text):
        listed = re.search(r"Available options in '\w+': (?P<names>.*?)(?: Config search path|$)", text)
        names = listed["names"].split() if listed else choices(folders, missing["group"])
        if names:
            group, near = missing["group"], nearest(missing["name"], names)
            if not near:
                near = f"; there are {', '.join(names)}{of_your_own(folders)}"
            return f"{group}={missing['name']}: there is no such choice{near} (see: vflbench list {group})"
    text = re.sub(r" (full_key:|Config search path:).*$", "", text).removeprefix("In 'train': ")
    key = str(getattr(error, "full_key", None) or getattr(error, "override", None) or "").partition("=")[0]
    if key and key not in text:
        text = f"{key}: {text}"
    return f"{text} (see: vflbench list, vflbench train --help)"
