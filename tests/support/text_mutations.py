"""Random damage to lines of text of any format, and to bytes. Independent of vflbench."""

ODD_NUMBERS = (
    *b"inf -inf nan NAN -nan nan(1) Infinity 1e400 -1e400 1e-400 1e e5 1e5 . .5 5. +1 --1 +-1 -+1 - 1_000 1_0 0x10".split(),
    *b"0x1p3 1,5 1.5.2 1d5 1f 7 1000000000000000000 999999999 -3 true NA ? null yes no y 01 1.0 -0 2 \"1\" '1'".split(),
    *(text.encode() for text in ("\u0661", "\uff11", "\u00b2", "\ufeff1", "", " ", "1" * 30, "9" * 400)),
)
_PIECES = (
    *(b"\0", b"\r", b"\n", b"\r\n", b"\n\n", b"\t", b" ", b",", b";", b":", b"#", b'"', b'""', b'"\n"', b"'", b"\\"),
    *(b"\x0b", b"\x0c", b"\x1b[31m", b"\x1a", b"\x7f", b"\xff", b"\xc3", b"\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(text.encode() for text in ("\ufeff\u00e9\u2028\x85\u00a0\u2003\u202e\ufffd\U0001f600")),
)


def mutate(line, delimiter, rng):
    """A line with one random change, rarely several. The result may be as good as before, several lines, or none."""
    for _ in range(1 if rng.random() < 0.9 else rng.randint(2, 4)):
        line = rng.choice(_MUTATIONS)(line, delimiter, rng)
    return line


def mutate_bytes(content, rng):
    """Some bytes changed, inserted or removed, or the end cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        place = rng.randrange(min(len(data), rng.choice((32, len(data)))) + 1)
        put_in = rng.choice((b"", b"\0", b"\xff", rng.randbytes(1), rng.randbytes(rng.choice((1, 4, 50)))))
        data[place : place + rng.choice((0, 1, 1, 1, 4, 50))] = put_in
        if rng.random() < 0.03:
            del data[place:]
    return bytes(data)


def _splice(line, _, rng):
    """Something put in, taken out, or both."""
    place, put_in = rng.randint(0, len(line)), rng.choice((b"", rng.choice(_PIECES), rng.randbytes(1)))
    return line[:place] + put_in + line[place + rng.choice((0, 1, 1, 3)) :]


def _field(change):
    """A mutation of one field, or of one half of a field around a colon."""

    def mutation(line, delimiter, rng):
        fields = line.split(delimiter)
        place = rng.randrange(len(fields))
        halves = fields[place].split(b":")
        half = rng.randrange(len(halves))
        halves[half] = change(halves[half], rng)
        fields[place] = b":".join(halves)
        return delimiter.join(fields)

    return mutation


def _twice(line, delimiter, rng):
    return line + rng.choice((b"\n", b"", delimiter, b"\r")) + line


def _shuffle(line, delimiter, rng):
    fields = line.split(delimiter)
    return delimiter.join(rng.sample(fields, len(fields)) if rng.random() < 0.5 else [*fields, rng.choice(fields)])


def _ends(line, delimiter, rng):
    piece = rng.choice((*_PIECES, delimiter))
    return rng.choice((line + piece, piece + line, piece, b"", line.replace(delimiter, b"|"), line.upper()))


_MUTATIONS = (
    *(_splice,) * 5,
    *(_twice, _shuffle, _ends),
    *(_field(lambda _, rng: rng.choice(ODD_NUMBERS)),) * 3,
    _field(lambda field, _: b'"' + field + b'"'),
    _field(lambda field, rng: b" " * rng.randint(0, 2) + field + rng.choice((b"", b" ", b"\t"))),
    _field(lambda field, rng: field * rng.choice((2, 3, 200))),
)
