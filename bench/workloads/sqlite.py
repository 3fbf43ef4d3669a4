"""SQLite: 2,000 small transactions, and selects over 100,000 rows, on a file system in memory."""
from harness.inside import timed

UNIT = "ns"
TARGETS = {}
PREPARE = r"""
cd /tmp && python3 -c '
rows = ", ".join(f"({i * 7919 % 100003}, \"name {i}\")" for i in range(10))
open("insert.sql", "w").write("create table t(k integer, v text);\n" + f"begin; insert into t values {rows}; commit;\n" * 2000)
fill = "with recursive n(i) as (select 0 union all select i + 1 from n where i < 99999) insert into t select i * 7919 % 100003, hex(i) from n;\n"
open("fill.sql", "w").write("create table t(k integer primary key, v text);\n" + fill)
open("select.sql", "w").write("".join(f"select v from t where k = {i * 7919 % 100003};\n" for i in range(10000))
                              + "select count(*), sum(length(v)) from t where v like \"%7%\";\n" * 5)
'
sqlite3 full.db < fill.sql
"""  # noqa: E501


def measure(runtime, opt):
    count = 2 if opt.quick else 5
    return {
        "SQLite, 2,000 transactions": timed(
            runtime,
            "sh",
            "-c",
            "sqlite3 /tmp/new.db < /tmp/insert.sql",
            prepare=PREPARE,
            before="rm -f /tmp/new.db*",
            count=count,
        ),
        "SQLite, 10,000 selects and 5 scans": timed(
            runtime, "sh", "-c", "sqlite3 /tmp/full.db < /tmp/select.sql", prepare=PREPARE, count=count
        ),
    }
