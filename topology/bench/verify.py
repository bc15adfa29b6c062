# Counts the rows of Parquet files, and their distinct keys. One JSON task on
# stdin, one report out.
import json, resource, sys, time
import duckdb

task = json.load(sys.stdin)
con = duckdb.connect()
con.execute("SET enable_progress_bar = false")


def timed(what):
    start = time.monotonic()
    n = con.execute("SELECT %s FROM read_parquet('%s')" % (what, task["files"])).fetchone()[0]
    return n, time.monotonic() - start


rows, count = timed("count(*)")
distinct, keys = timed("count(DISTINCT %s)" % task["key"])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
json.dump({"rows": rows, "count": count, "distinct": distinct, "keys": keys, "rss": peak}, sys.stdout)
