# Makes the Parquet files of TestForeignTimes with PyArrow, in the folder given.
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

# Microseconds since 1970: its beginning, around it, before it, and far from it.
MICROS = [0, 1_000, -1_000, 1_700_000_000_123_000, -62_135_596_800_000_000, None, 253_402_300_799_999_000, -1_000, -86_400_000_000, 951_782_400_007_000]
TIMES = [0, 1, 86_399_999, None, 43_200_500, 0, 1, 7, 3_600_000, None]


def field(name, t, id, nullable=True):
    return pa.field(name, t, nullable, {"PARQUET:field_id": str(id)})


def write(name, unit, millis, **options):
    stamp, zoned = pa.timestamp(unit), pa.timestamp(unit, "UTC")
    # Where microseconds can be told, each row has its number of them more.
    instants = [None if v is None else v // 1000 if unit == "ms" else v if millis else v + i for i, v in enumerate(MICROS)]
    inner = field("at", stamp, 6)
    columns = [
        (field("id", pa.int64(), 1, False), range(len(MICROS))),
        (field("local", stamp, 2), instants),
        (field("zoned", zoned, 3), instants),
        (field("nest", pa.struct([inner]), 5), [{"at": v} for v in instants]),
    ]
    if millis:
        columns.append((field("clock", pa.time32("ms"), 4), TIMES))
    else:
        columns.append((field("bytes", pa.binary(), 7), [f"text {i} ø".encode() if i else None for i in range(len(MICROS))]))
        columns.append((field("sixteen", pa.binary(16), 8), [bytes([i] * 16) for i in range(len(MICROS))]))
    table = pa.table([pa.array(v, f.type) for f, v in columns], schema=pa.schema([f for f, _ in columns]))
    pq.write_table(table, os.path.join(sys.argv[1], name), store_schema=False, compression="none", **options)


write("int96-plain.parquet", "us", False, use_deprecated_int96_timestamps=True, use_dictionary=False)
write("int96-dict.parquet", "us", False, use_deprecated_int96_timestamps=True, data_page_version="2.0")
write("millis-dict.parquet", "us", True, coerce_timestamps="ms")
write("millis-plain.parquet", "us", True, coerce_timestamps="ms", use_dictionary=False, version="1.0")
coded = ["local", "zoned", "clock", "nest.at"]
write("millis-delta.parquet", "ms", True, use_dictionary=False, column_encoding={c: "DELTA_BINARY_PACKED" for c in coded})
write("millis-split.parquet", "ms", True, use_dictionary=False, column_encoding={c: "BYTE_STREAM_SPLIT" for c in coded}, data_page_version="2.0")

# One millisecond more than 64 bits of microseconds hold, and as far before.
for name, v in (("millis-late.parquet", (1 << 63) // 1000 + 1), ("millis-early.parquet", -((1 << 63) // 1000) - 1)):
    f = field("local", pa.timestamp("ms"), 2)
    pq.write_table(pa.table([pa.array([0, v], f.type)], schema=pa.schema([f])), os.path.join(sys.argv[1], name), store_schema=False)
