"""What a file is by its first bytes, where a table is expected: so that no binary file is parsed or shown."""

from collections.abc import Sequence

_SIGNATURES = (
    (b"PAR1", "a Parquet file; read it with dataset=parquet"),
    (
        b"ARROW1",
        "an Arrow (Feather) file; write it as Parquet: pyarrow.parquet.write_table(pyarrow.feather.read_table(FILE), OUT)",
    ),
    (b"FEA1", "a Feather file; write it as Parquet: pyarrow.parquet.write_table(pyarrow.feather.read_table(FILE), OUT)"),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an Excel workbook; export it as CSV (libreoffice --headless --convert-to csv FILE)",
    ),
    (b"\x89PNG", "a picture (PNG); a folder of pictures is read with dataset=image_folder"),
    (b"\xff\xd8\xff", "a picture (JPEG); a folder of pictures is read with dataset=image_folder"),
    (b"GIF8", "a picture (GIF); a folder of pictures is read with dataset=image_folder"),
    (b"%PDF-", "a PDF document; a table is expected, as CSV or Parquet"),
    (b"\x89HDF\r\n", "an HDF5 file; write the table as Parquet: pandas.read_hdf(FILE).to_parquet(OUT)"),
    (b"SQLite format 3", "an SQLite database; export the table as CSV (sqlite3 -header -csv FILE 'select * from TABLE')"),
    (b"\x93NUMPY", "a NumPy array; write it as CSV with the names of the columns in the first line"),
    (b"Obj\x01", "an Avro file; write the table as Parquet or CSV"),
    (b"ORC", "an ORC file; write it as Parquet: pyarrow.parquet.write_table(pyarrow.orc.read_table(FILE), OUT)"),
    (b"$FL2", "an SPSS file; write the table as CSV or Parquet: pandas.read_spss(FILE).to_parquet(OUT)"),
    (b"<stata_dta>", "a Stata file; write the table as CSV or Parquet: pandas.read_stata(FILE).to_parquet(OUT)"),
    (b"RDX", "an R data file; write the table as CSV: write.csv(x, FILE, row.names = FALSE)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it, or pack the table as .zip or .gz"),
    (b"Rar!\x1a", "a RAR archive; unpack it, or pack the table as .zip or .gz"),
    (b"\x7fELF", "a program; a table is expected, as CSV or Parquet"),
)
_MARKUP = (b"<!doctype html", b"<html", b"<?xml", b"<svg")
_LEAST, _MOST_CONTROLS = 64, 0.02
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b")) + b"\x7f"


def not_a_table(head: bytes) -> str | None:
    """What the file is instead of a text table, as `it is ...`; None where it may be one. head: its first bytes."""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature) and not (head[:4] == b"ORC," or (head[:3] == b"RDX" and head[3:4] not in b"23")):
            return f"it is {kind}"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "it is a pickle, which could run any program and is never opened; write the table as CSV or Parquet"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:64].lower().startswith(_MARKUP):
        return "it is a web page or XML; was a page saved in place of the table? CSV or Parquet is expected"
    if start[:1] in (b"{", b"[") and b'"' in start[:4096] and b":" in start[:4096]:
        return "it is JSON; write the table as CSV or Parquet: pandas.read_json(FILE, lines=True or False).to_parquet(OUT)"
    sample = head[:4096]
    if len(sample) >= _LEAST and len(sample.translate(None, _CONTROLS)) < (1 - _MOST_CONTROLS) * len(sample):
        return "it is no text but a binary file of a kind that isn't known here; a table is expected, as CSV or Parquet"
    return None


def packed_document(members: Sequence[str]) -> str | None:
    """What a .zip archive of these members is, if it is a document and no archive of tables; else None."""
    if "[Content_Types].xml" in members:
        if any(name.startswith("xl/") for name in members):
            return (
                "it is an Excel workbook; export its sheet as CSV (in Excel: save as CSV UTF-8; or "
                "libreoffice --headless --convert-to csv FILE)"
            )
        return "it is an Office document; a table is expected, as CSV or Parquet"
    if "mimetype" in members and "content.xml" in members:
        return "it is an OpenDocument file; export its sheet as CSV (libreoffice --headless --convert-to csv FILE)"
    if any(name.endswith(("/data.pkl", "/byteorder")) for name in members):
        return "it is a file of PyTorch; a table is expected, as CSV or Parquet"
    if members and all(name.endswith(".npy") for name in members):
        return "it is a file of NumPy arrays (.npz); write the table as CSV or Parquet"
    return None
