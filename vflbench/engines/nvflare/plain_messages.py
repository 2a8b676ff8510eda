"""What FLARE's serialisation (FOBS) may build of a message at a site of ours: FLARE's own plain records, and nothing else.

FOBS is msgpack with a decomposer for each class: it builds an object of the class that a message names. Pickle has no part
in it. As it comes, FOBS makes a decomposer for any class that is sent, loads classes that a list of its own allows by name,
and has decomposers of arrays, tensors and files that make the receiver fetch further data. A call of ours holds text and
bytes alone, so all of that is switched off.
"""

from nvflare.fuel.utils.fobs import fobs

NEEDED = frozenset(
    {
        "tuple",
        "set",
        "collections.OrderedDict",
        "datetime.datetime",
        "nvflare.apis.client.Client",
        "nvflare.apis.fl_context.FLContext",
        "nvflare.apis.shareable.Shareable",
        "nvflare.fuel.utils.fobs.datum.DatumRef",
        "nvflare.private.admin_defs.Message",
        "nvflare.private.fed.server.run_info.RunInfo",
        "nvflare.private.fed.server.server_state.HotState",
    }
)
"""What FLARE itself sends between the processes of a job, to set it up and to end it."""


def take_plain_messages_alone() -> None:
    """Called in each process of a job, when FLARE has registered what it registers."""
    fobs._register_decomposers()  # now, or it would be done at the first message
    fobs.auto_register_data_classes(False)
    fobs.auto_register_enum_types(False)
    fobs._type_name_whitelist.clear()
    for name in [name for name in fobs._decomposers if name not in NEEDED]:
        del fobs._decomposers[name]
    fobs._dot_handlers.clear()
