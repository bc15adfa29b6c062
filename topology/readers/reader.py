"""Reads Iceberg tables for varve's tests: one JSON request a line, one JSON answer a line.

Values cross as what they are stored as (numbers of days, micro- or nanoseconds;
hexadecimal bytes), so no Python type narrows them. The caller makes text of them.
"""
import datetime
import decimal
import glob
import importlib
import json
import os
import sys

import pyarrow as pa
import pyarrow.compute as pc


def nested(v, t):
    """A nested value as JSON: a map is a list of its entries, in their order. What JSON
    has no form for is the text that it has as a column's value."""
    if v is None:
        return None
    if pa.types.is_struct(t):
        return {t.field(i).name: nested(v[t.field(i).name], t.field(i).type) for i in range(t.num_fields)}
    if pa.types.is_map(t):
        return [{"key": nested(k, t.key_type), "value": nested(x, t.item_type)} for k, x in v]
    if pa.types.is_nested(t):
        return [nested(x, t.value_type) for x in v]
    if isinstance(v, datetime.datetime):
        return v.isoformat(timespec="microseconds")
    if isinstance(v, datetime.date):
        return v.isoformat()
    if isinstance(v, decimal.Decimal):
        return format(v, "f")
    if isinstance(v, bytes):
        return v.hex()
    return v


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
    elif pa.types.is_time64(t) and t.unit == "ns":  # Polars knows no other
        kind, vals = "time_us", arr.cast(pa.time64("us")).cast(pa.int64()).to_pylist()
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
    elif pa.types.is_nested(t):
        kind, vals = "nested", [None if v is None else json.dumps(nested(v, t)) for v in arr.to_pylist()]
    else:
        raise TypeError(f"column {name}: no text form for Arrow type {t}")
    if kind_hint:
        kind = kind_hint
    return {"name": name, "kind": kind, "values": vals}


_duckdb = {}


def duckdb_connection(catalog=None):
    """A database of its own for each catalog: DuckDB 1.5 now and then sends a request
    of one over a kept connection of another on the same host."""
    if catalog not in _duckdb:
        import duckdb

        con = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
        for name in ("parquet", "avro", "httpfs", "iceberg"):
            base = os.path.dirname(importlib.import_module("duckdb_extension_" + name).__file__)
            root = os.path.join(base, "extensions", "v" + duckdb.__version__)
            con.execute(f"LOAD '{os.path.join(root, name + '.duckdb_extension')}'")
        con.execute("SET TimeZone='UTC'")
        # A path is written once (S4), but tests make tables anew in one folder.
        con.execute("SET enable_external_file_cache=false")
        _duckdb[catalog] = con
    return _duckdb[catalog]


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
    con = duckdb_connection((req["uri"], req.get("token")) if req.get("uri") else None)
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
    return arrow_columns(con.execute(sql).to_arrow_table())


def pyiceberg_table(req):
    from pyiceberg.table import StaticTable

    if req.get("lineage"):
        raise NotImplementedError("PyIceberg does not read row lineage")
    properties = dict(req.get("properties") or {})
    if req.get("uri"):
        from pyiceberg.catalog.rest import RestCatalog

        properties["uri"] = req["uri"]
        if req.get("token"):
            properties["token"] = req["token"]
        return RestCatalog("rest", **properties).load_table(tuple(req["metadata"].split(".")))
    return StaticTable.from_metadata(req["metadata"], properties=properties)


def uuid_columns(schema):
    from pyiceberg.types import UUIDType

    return {f.name for f in schema.fields if isinstance(f.field_type, UUIDType)}


def read_pyiceberg(req):
    table = pyiceberg_table(req)
    kwargs = {}
    if req.get("snapshot"):
        kwargs["snapshot_id"] = int(req["snapshot"])
    if req.get("columns"):
        kwargs["selected_fields"] = tuple(req["columns"])
    if req.get("filter"):
        kwargs["row_filter"] = req["filter"]
    scan = table.scan(**kwargs)
    uuids = uuid_columns(scan.projection())
    return arrow_columns(scan.to_arrow(), uuids)


def arrow_columns(table, uuids=()):
    return [column(n, table.column(i), "uuid" if n in uuids else None) for i, n in enumerate(table.column_names)]


def read_polars(req):
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
    import polars as pl

    table = pyiceberg_table(req)
    told = table.io.properties  # what the catalog told, and the request
    options = None
    if told.get("s3.endpoint"):  # Polars would ask the public S3
        options = {
            "aws_endpoint_url": told["s3.endpoint"],
            "aws_region": told.get("s3.region", "us-east-1"),
            "aws_access_key_id": told["s3.access-key-id"],
            "aws_secret_access_key": told["s3.secret-access-key"],
            "aws_allow_http": "true",
        }
    frame = pl.scan_iceberg(table, snapshot_id=req.get("snapshot") or None, storage_options=options)
    if req.get("filter"):
        frame = frame.filter(pl.sql_expr(req["filter"]))
    if req.get("columns"):
        frame = frame.select(req["columns"])
    snapshot = table.snapshot_by_id(req["snapshot"]) if req.get("snapshot") else None
    schema = table.schemas()[snapshot.schema_id] if snapshot else table.schema()
    return arrow_columns(frame.collect().to_arrow(), uuid_columns(schema))


_spark = None
_catalogs = {}


def spark_session():
    global _spark
    if _spark is None:
        from pyspark.sql import SparkSession

        _spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.jars", ",".join(glob.glob(os.path.join(sys.prefix, "jars", "*.jar"))))
            .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        _spark.sparkContext.setLogLevel("ERROR")
    return _spark


def spark_catalog(spark, req):
    key = (req["uri"], req.get("token"), json.dumps(req.get("properties"), sort_keys=True))
    if key not in _catalogs:
        name = f"c{len(_catalogs)}"
        at = "spark.sql.catalog." + name
        spark.conf.set(at, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(at + ".type", "rest")
        spark.conf.set(at + ".uri", req["uri"])
        spark.conf.set(at + ".cache-enabled", "false")  # a table is read as it is now
        if req.get("token"):
            spark.conf.set(at + ".token", req["token"])
        for k, v in (req.get("properties") or {}).items():
            spark.conf.set(f"{at}.{k}", v)
        _catalogs[key] = name
    return _catalogs[key]


def spark_sql(req, source):
    cols = ", ".join(f"`{c}`" for c in req.get("columns") or []) or "*"
    if req.get("lineage"):
        cols = "_row_id, _last_updated_sequence_number, " + cols
    return f"SELECT {cols} FROM {source}" + (" WHERE " + req["filter"] if req.get("filter") else "")


def read_spark(req):
    spark = spark_session()
    parts = ".".join(f"`{p}`" for p in req["metadata"].split("."))
    source = f"{spark_catalog(spark, req)}.{parts}"
    if req.get("snapshot"):
        source += f" VERSION AS OF {int(req['snapshot'])}"
    return arrow_columns(spark.sql(spark_sql(req, source)).toArrow())


_sail = None


def read_sail(req):
    """Sail reads the table's folder (Options.Properties location), and does not say which bytes are a uuid (uuid)."""
    global _sail
    p = req["properties"]
    if p.get("endpoint"):
        os.environ.update(
            AWS_ENDPOINT=p["endpoint"],
            AWS_ALLOW_HTTP="true",
            AWS_ACCESS_KEY_ID=p["access-key-id"],
            AWS_SECRET_ACCESS_KEY=p["secret-access-key"],
            AWS_REGION="us-east-1",
        )
    if _sail is None:
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession

        server = SparkConnectServer("127.0.0.1", 0)
        server.start(background=True)
        _, port = server.listening_address
        spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        _sail = (server, spark)
    spark = _sail[1]
    reader = spark.read.format("iceberg")
    if req.get("snapshot"):
        reader = reader.option("snapshotId", str(req["snapshot"]))
    reader.load(p["location"]).createOrReplaceTempView("t")
    return arrow_columns(spark.sql(spark_sql(req, "t")).toArrow(), {p.get("uuid")})


ENGINES = {
    "duckdb": read_duckdb,
    "pyiceberg": read_pyiceberg,
    "polars": read_polars,
    "spark": read_spark,
    "sail": read_sail,
}


def main():
    # What an engine prints must not stand among the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        req = json.loads(line)
        try:
            answer = {"columns": ENGINES[req["engine"]](req)}
        except Exception as e:  # the engine's own refusal is an answer
            answer = {"error": f"{type(e).__name__}: {e}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


main()
