"""Parquet files of PyArrow and DuckDB with rows of a keyed table, events of the same keys,
and by DuckDB's SQL the rows that both together must give."""
import datetime
import glob
import importlib
import json
import os
import random
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = 1200
COLUMNS = ["id", "name", "qty", "price", "ver", "born", "at"]
IDS = {c: i + 1 for i, c in enumerate(COLUMNS)}


def version_row(rnd, ver):
    """The version of a row with this ordering value."""
    maybe = lambda v: None if rnd.random() < 0.15 else v
    return {
        "id": rnd.randrange(KEYS) - 100,
        "name": maybe(rnd.choice(["ä", "b", "long-" + "x" * 40, "", "ver"]) + str(ver % 17)),
        "qty": maybe(rnd.randrange(-(2**31), 2**31)),
        "price": maybe(rnd.randrange(-4000, 4000) / 4),
        "ver": ver,
        "born": maybe(datetime.date(1900, 1, 1) + datetime.timedelta(days=rnd.randrange(60000))),
        "at": maybe(datetime.datetime(2001, 1, 1) + datetime.timedelta(microseconds=rnd.randrange(10**15))),
    }


def make(folder):
    rnd = random.Random(11)
    schema = {
        "type": "struct",
        "fields": [
            {"id": IDS[c], "name": c, "required": c == "id", "type": t}
            for c, t in zip(COLUMNS, ["long", "string", "int", "double", "long", "date", "timestamp"])
        ],
    }
    with open(os.path.join(folder, "schema.json"), "w") as f:
        json.dump(schema, f)
    counts = [rnd.randrange(1, 60) for _ in range(48)]
    events = [260] * 8 + [80, 80]
    vers = list(range(1, 1 + sum(counts) + sum(events)))  # 0 in a delete means none
    rnd.shuffle(vers)  # what comes later is newer or older
    take = lambda n: [version_row(rnd, vers.pop()) for _ in range(n)]
    files = []
    for i, n in enumerate(counts):
        rows = take(n)
        path = os.path.join(folder, f"{i:02}-{'duckdb' if i % 2 else 'pyarrow'}.parquet")
        columns = COLUMNS[:]
        if i % 5 == 1:
            columns.remove("born")
            for r in rows:
                r["born"] = None
        rnd.shuffle(columns)
        millis = i % 12 in (2, 8)
        if millis:
            for r in rows:
                r["at"] = r["at"] and r["at"].replace(microsecond=r["at"].microsecond // 1000 * 1000)
        if i % 2 == 0:
            types = {
                "id": pa.int32() if i % 3 == 0 else pa.int64(),
                "name": [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())][i // 2 % 3],
                "qty": pa.int32(),
                "price": pa.float32() if i % 8 == 0 else pa.float64(),
                "ver": pa.int64(),
                "born": pa.date32(),
                "at": pa.timestamp("us"),
            }
            fields = [pa.field(c, types[c], nullable=c != "id" or i % 4 == 0, metadata={"PARQUET:field_id": str(IDS[c])} if i % 3 else None) for c in columns]
            arrays = [pa.array([r[c] for r in rows], types[c]) for c in columns]
            pq.write_table(
                pa.Table.from_arrays(arrays, schema=pa.schema(fields)),
                path,
                compression=["snappy", "zstd", "gzip", "none"][i // 2 % 4],
                use_dictionary=i % 4 == 0,
                data_page_version=["1.0", "2.0"][i // 4 % 2],
                data_page_size=64 if i % 3 == 1 else None,
                row_group_size=7 if i % 6 == 2 else 1000,
                write_statistics=i % 8 != 6,
                use_deprecated_int96_timestamps=i % 12 == 4,
                coerce_timestamps="ms" if millis else None,
            )
        else:
            sql = {"id": "BIGINT", "name": "VARCHAR", "qty": "INTEGER", "price": "DOUBLE", "ver": "BIGINT", "born": "DATE", "at": "TIMESTAMP"}
            con = duckdb.connect()
            con.register("r", pa.table({c: pa.array([r[c] for r in rows]) for c in COLUMNS}))
            what = ", ".join(f'"{c}"::{sql[c]} AS "{c}"' for c in columns)
            ids = ", FIELD_IDS {" + ", ".join(f"'{c}': {IDS[c]}" for c in columns) + "}" if i % 3 else ""
            codec = ["snappy", "zstd", "gzip", "uncompressed"][i // 2 % 4]
            con.execute(f"COPY (SELECT {what} FROM r) TO '{path}' (FORMAT parquet, COMPRESSION {codec}, PARQUET_VERSION {['v1', 'v2'][i // 4 % 2]}{ids})")
        files.append(path)
    lists = []
    for i, n in enumerate(events):
        path = os.path.join(folder, f"events-{i}.jsonl")
        with open(path, "w") as f:
            for r in take(n):
                if rnd.random() < 0.25:
                    e = {"id": r["id"], "ver": r["ver"], "__deleted": "true"}
                else:
                    e = {c: v if c not in ("born", "at") or v is None else v.isoformat() for c, v in r.items()}
                f.write(json.dumps(e) + "\n")
        lists.append(path)
    return {"Files": files, "Events": lists}


EVENTS = "{'id': 'BIGINT', 'name': 'VARCHAR', 'qty': 'INTEGER', 'price': 'DOUBLE', 'ver': 'BIGINT', 'born': 'DATE', 'at': 'TIMESTAMP', '__deleted': 'VARCHAR'}"


def connection():
    con = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
    for name in ("parquet", "avro", "httpfs", "iceberg"):
        base = os.path.dirname(importlib.import_module("duckdb_extension_" + name).__file__)
        con.execute(f"LOAD '{os.path.join(base, 'extensions', 'v' + duckdb.__version__, name + '.duckdb_extension')}'")
    return con


def check(folder, metadata, *events):
    from pyiceberg.table import StaticTable

    con = connection()
    files = sorted(glob.glob(os.path.join(folder, "*.parquet")))
    columns = ", ".join(f'"{c}"' for c in COLUMNS)
    con.execute(
        f"""CREATE TABLE want AS SELECT {columns} FROM (
            SELECT {columns}, NULL AS deleted FROM read_parquet({files}, union_by_name=true)
            UNION ALL SELECT {columns}, __deleted FROM read_json({list(events)}, format='newline_delimited', columns={EVENTS})
        ) QUALIFY row_number() OVER (PARTITION BY id ORDER BY ver DESC) = 1 AND deleted IS NULL"""
    )
    iceberg = StaticTable.from_metadata(metadata).scan().to_arrow()
    con.register("pyiceberg", iceberg)
    con.execute(f"CREATE TABLE duckdb AS SELECT * FROM iceberg_scan('{metadata}')")
    out = {"Differ": [], "Keys": []}
    for name in ("want", "duckdb", "pyiceberg"):
        key = {"want": "Want", "duckdb": "DuckDB", "pyiceberg": "PyIceberg"}[name]
        out[key] = con.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
        for a, b in ((name, "want"), ("want", name)):
            for row in con.execute(f"SELECT {columns} FROM {a} EXCEPT ALL SELECT {columns} FROM {b} ORDER BY id LIMIT 5").fetchall():
                out["Differ"].append(f"{a}, not {b}: {row}")
                out["Keys"].append(row[0])
    out["Keys"] = sorted(set(out["Keys"]))[:3]
    return out


def versions(folder, key, *events):
    """All versions of a key, by their ordering values, for whoever looks why rows differ."""
    con = duckdb.connect()
    files = sorted(glob.glob(os.path.join(folder, "*.parquet")))
    return [
        str(row)
        for row in con.execute(
            f"""SELECT ver, filename, n, deleted FROM (
            SELECT id, ver, filename, file_row_number AS n, NULL AS deleted FROM read_parquet({files}, union_by_name=true, filename=true, file_row_number=true)
            UNION ALL SELECT id, ver, filename, row_number() OVER (PARTITION BY filename), __deleted FROM read_json({list(events)}, format='newline_delimited', columns={EVENTS}, filename=true)
            ) WHERE id = {int(key)} ORDER BY ver"""
        ).fetchall()
    ]


def keys(_, *events):
    return sorted({json.loads(line)["id"] for path in events for line in open(path)})


print(json.dumps({"make": make, "check": check, "keys": keys, "versions": versions}[sys.argv[1]](*sys.argv[2:])))
