"""The encoding of a text: what its first bytes tell, and texts of another encoding as UTF-8."""

import codecs
from typing import Any

from vflbench.data.files import Part
from vflbench.errors import UserError

UTF8 = "utf-8"


def check_encoding(name: str) -> str:
    """The same name. Raises UserError where Python knows no such encoding of texts."""
    try:
        known = codecs.lookup(name)
    except (LookupError, ValueError):
        known = None
    if known is None or not getattr(known, "_is_text_encoding", True) or known.name in ("idna", "punycode"):
        problem = "there is no such encoding; usual ones are utf-8, cp1252 (Western Windows), latin-1 and utf-16"
        raise UserError(problem, key="dataset.encoding", value=name)
    return known.name


class Recoded:
    """A stream of bytes in UTF-8, of a stream in another encoding. A byte-order mark is left out."""

    def __init__(self, stream: Any, encoding: str):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size: int) -> bytes:
        """About so many bytes; none at the end alone. Raises ValueError for bytes that the encoding doesn't have."""
        while True:
            data = self._stream.read(size)
            text = self._decoder.decode(data, final=not data)
            if text or not data:
                return text.encode("utf-8", "surrogatepass")

    def close(self) -> None:
        self._stream.close()


def as_utf8(stream: Any, encoding: str) -> Any:
    """The stream itself if it is in UTF-8."""
    return stream if encoding in (UTF8, "utf_8_sig", "utf-8-sig", "ascii") else Recoded(stream, encoding)


def without_mark(start: bytes, part: Part) -> bytes:
    """The start of a text without its byte-order mark. Raises UserError for what is no text, or in another encoding."""
    head = start[:4096]
    zeros = (head[0::2].count(0), head[1::2].count(0))
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or (
        max(zeros) > len(head) // 5 and min(zeros) < len(head) // 20
    ):
        problem = "it is UTF-16 or UTF-32 text; save it as UTF-8 (iconv -f UTF-16 -t UTF-8 FILE)"
        raise UserError(problem, key="dataset.path", value=str(part))
    if head.startswith(b"PAR1"):
        raise UserError("it is a Parquet file; read it with dataset=parquet", key="dataset.path", value=str(part))
    if b"\0" in head.partition(b"\n")[0]:
        problem = "line 1: it is no text; a table is expected, as CSV or Parquet (export an Excel workbook as CSV)"
        raise UserError(problem, key="dataset.path", value=str(part))
    return start.removeprefix(codecs.BOM_UTF8)
