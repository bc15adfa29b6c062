# Rewrites sorted Parquet files as one, without the rows that a table of
# positions names, in the order of k. One JSON task on stdin, one report out.
import json, os, resource, sys
import duckdb

task = json.load(sys.stdin)
con = duckdb.connect()
con.execute("SET threads = 1")
con.execute("SET enable_progress_bar = false")
con.execute("SET temp_directory = '%s'" % task["tmp"])
con.execute("CREATE TABLE dead AS SELECT p FROM read_parquet('%s')" % task["dead"])
parts = " UNION ALL ".join(
    "SELECT k, a, b, d, s1, s2, (%d::BIGINT << 32) + file_row_number AS p FROM read_parquet('%s', file_row_number = true)" % (i, f)
    for i, f in enumerate(task["files"])
)


def cpu():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


start = cpu()
con.execute(
    "COPY (SELECT k, a, b, d, s1, s2 FROM (%s) t ANTI JOIN dead USING (p) ORDER BY k) TO '%s' "
    "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)" % (parts, task["out"])
)
used = cpu() - start
rows = con.execute("SELECT count(*) FROM read_parquet('%s')" % task["out"]).fetchone()[0]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
json.dump({"cpu": used, "rss": peak, "rows": rows, "bytes": os.path.getsize(task["out"])}, sys.stdout)
