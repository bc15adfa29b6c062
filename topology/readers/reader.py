"""Reads Iceberg tables for varve's tests: one JSON request a line, one JSON answer a line.

Values cross as what they are stored as (numbers of days, micro- or nanoseconds;
hexadecimal bytes), so no Python type narrows them. The caller makes text of them.
"""
import importlib
import json
import os
import sys

import pyarrow as pa
import pyarrow.compute as pc


def column(name, chunks, kind_hint=None):
    arr = chunks.combine_chunks() if isinstance(chunks, pa.ChunkedArray) else chunks
    if isinstance(arr, pa.ChunkedArray):  # no chunks at all
        arr = pa.array([], type=arr.type)
    if isinstance(arr.type, pa.BaseExtensionType):
        if "uuid" in str(arr.type).lower():
            kind_hint = "uuid"
        arr = arr.storage
    t = arr.type
    if pa.types.is_dictionary(t):
        arr = arr.dictionary_decode()
        t = arr.type
    if pa.types.is_boolean(t):
        kind, vals = "boolean", arr.to_pylist()
    elif pa.types.is_integer(t):
        kind, vals = "int", arr.to_pylist()
    elif pa.types.is_float32(t):
        kind, vals = "float", [None if v is None else v.hex() for v in arr.to_pylist()]
    elif pa.types.is_float64(t):
        kind, vals = "double", [None if v is None else v.hex() for v in arr.to_pylist()]
    elif pa.types.is_decimal(t):
        kind, vals = "decimal", [None if v is None else format(v, "f") for v in arr.to_pylist()]
    elif pa.types.is_date32(t):
        kind, vals = "date", arr.cast(pa.int32()).to_pylist()
    elif pa.types.is_time64(t):
        kind, vals = "time_" + t.unit, arr.cast(pa.int64()).to_pylist()
    elif pa.types.is_timestamp(t):
        kind = "timestamp_" + t.unit + ("_tz" if t.tz else "")
        vals = arr.cast(pa.int64()).to_pylist()
    elif pa.types.is_string(t) or pa.types.is_large_string(t) or str(t) == "string_view":
        kind, vals = "string", arr.to_pylist()
    elif (
        pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_fixed_size_binary(t)
        or str(t) == "binary_view"
    ):
        kind, vals = "binary", [None if v is None else v.hex() for v in arr.to_pylist()]
    else:
        raise TypeError(f"column {name}: no text form for Arrow type {t}")
    if kind_hint:
        kind = kind_hint
    return {"name": name, "kind": kind, "values": vals}


_duckdb = None


def duckdb_connection():
    global _duckdb
    if _duckdb is None:
        import duckdb

        con = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
        for name in ("parquet", "avro", "httpfs", "iceberg"):
            base = os.path.dirname(importlib.import_module("duckdb_extension_" + name).__file__)
            root = os.path.join(base, "extensions", "v" + duckdb.__version__)
            con.execute(f"LOAD '{os.path.join(root, name + '.duckdb_extension')}'")
        con.execute("SET TimeZone='UTC'")
        # A path is written once (S4), but tests make tables anew in one folder.
        con.execute("SET enable_external_file_cache=false")
        _duckdb = con
    return _duckdb


def quoted(s):
    return "'" + s.replace("'", "''") + "'"


def named(s):
    return '"' + s.replace('"', '""') + '"'


def duckdb_attached(con, req):
    """The table of a REST catalog, which is attached anew: it is read as it is now."""
    auth = "AUTHORIZATION_TYPE 'none'"
    if req.get("token"):
        auth = "TOKEN " + quoted(req["token"])
    con.execute("DETACH DATABASE IF EXISTS rest")
    con.execute(f"ATTACH '' AS rest (TYPE iceberg, ENDPOINT {quoted(req['uri'])}, {auth})")
    namespace, _, table = req["metadata"].rpartition(".")
    at = f" AT (VERSION => {int(req['snapshot'])})" if req.get("snapshot") else ""
    return f"rest.{named(namespace)}.{named(table)}{at}"


def read_duckdb(req):
    con = duckdb_connection()
    for k, v in (req.get("properties") or {}).items():
        con.execute(f"SET {k}={quoted(v)}")
    args = [quoted(req["metadata"])]
    if req.get("snapshot"):
        args.append(f"snapshot_from_id={int(req['snapshot'])}")
    cols = ", ".join(named(c) for c in req.get("columns") or []) or "*"
    if req.get("lineage"):
        cols = "_row_id, _last_updated_sequence_number, " + cols
    source = duckdb_attached(con, req) if req.get("uri") else f"iceberg_scan({', '.join(args)})"
    sql = f"SELECT {cols} FROM {source}"
    if req.get("filter"):
        sql += " WHERE " + req["filter"]
    table = con.execute(sql).to_arrow_table()
    return [column(n, table.column(i)) for i, n in enumerate(table.column_names)]


def read_pyiceberg(req):
    from pyiceberg.table import StaticTable
    from pyiceberg.types import UUIDType

    if req.get("lineage"):
        raise NotImplementedError("PyIceberg does not read row lineage")
    properties = dict(req.get("properties") or {})
    if req.get("uri"):
        from pyiceberg.catalog.rest import RestCatalog

        properties["uri"] = req["uri"]
        if req.get("token"):
            properties["token"] = req["token"]
        table = RestCatalog("rest", **properties).load_table(tuple(req["metadata"].split(".")))
    else:
        table = StaticTable.from_metadata(req["metadata"], properties=properties)
    kwargs = {}
    if req.get("snapshot"):
        kwargs["snapshot_id"] = int(req["snapshot"])
    if req.get("columns"):
        kwargs["selected_fields"] = tuple(req["columns"])
    if req.get("filter"):
        kwargs["row_filter"] = req["filter"]
    scan = table.scan(**kwargs)
    schema = scan.projection()
    got = scan.to_arrow()
    out = []
    for i, n in enumerate(got.column_names):
        hint = "uuid" if isinstance(schema.find_type(n), UUIDType) else None
        out.append(column(n, got.column(i), hint))
    return out


ENGINES = {"duckdb": read_duckdb, "pyiceberg": read_pyiceberg}


def main():
    for line in sys.stdin:
        req = json.loads(line)
        try:
            answer = {"columns": ENGINES[req["engine"]](req)}
        except Exception as e:  # the engine's own refusal is an answer
            answer = {"error": f"{type(e).__name__}: {e}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
