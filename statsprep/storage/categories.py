"""`utt2X` (`utt value` per line) and its inverse `X2utt` (`value utt utt ...`), as ESPnet reads them."""

from pathlib import Path

from statsprep.errors import DataError
from statsprep.storage.atomic import open_private

_IDS_PER_WRITE = 65_536


def invert(utt2x: Path, x2utt: Path) -> None:
    """Write `X2utt` from `utt2X`: values sorted, ids in the order of the file.

    Raises:
        DataError: a line is not `utt value`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    try:
        table = csv.read_csv(
            utt2x,
            read_options=csv.ReadOptions(column_names=["utt_id", "value"]),
            parse_options=csv.ParseOptions(delimiter=" ", quote_char=False, escape_char=False),
            convert_options=csv.ConvertOptions(
                column_types={"utt_id": pa.large_string(), "value": pa.large_string()}
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{utt2x.name}: a line is not `utt_id value` ({' '.join(str(error).split())[:120]}); the shards "
            "are damaged; `statsprep verify` them, or measure the split again"
        ) from error
    with open_private(x2utt) as stream:
        for value in sorted(pc.unique(table["value"]).to_pylist()):
            ids = table["utt_id"].filter(pc.equal(table["value"], value))
            stream.write(value)
            for start in range(0, len(ids), _IDS_PER_WRITE):
                part = ids.slice(start, _IDS_PER_WRITE).to_pylist()
                stream.write(" " + " ".join(part))
            stream.write("\n")
