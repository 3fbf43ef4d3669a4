"""Databases on files that stay, while whoever keeps them is killed: no acknowledged transaction is lost, none corrupt.

DOPPEL_DATABASE_KILLS says how often for each database and each victim (`make soak`: 200).
"""
import json
import os
import pathlib
import random
import signal
import time

import pytest
from conftest import eventually, have_image
from leftovers import of_any_kind
from processes import words

KILLS = int(os.environ.get("DOPPEL_DATABASE_KILLS", "2"))
# Rows that are acknowledged between two kills at least.
ROWS = 3

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# Both say in files of the host what they have found at their start, once that was checked, and each committed row.
SQLITE = r"""
import os, random, sqlite3
db = sqlite3.connect("/root/db", isolation_level=None)
db.execute("pragma journal_mode=" + os.environ["JOURNAL"])
# A domain that is killed is a machine that loses its power: FULL does not sync that the journal is gone.
db.execute("pragma synchronous=extra")
db.execute("create table if not exists t(n integer primary key, v blob)")
assert db.execute("pragma integrity_check").fetchone() == ("ok",)
n, last = db.execute("select count(*), coalesce(max(n), 0) from t").fetchone()
assert n == last, (n, last)
open("/said/found", "w").write(f"{n}\n")
rows = os.open("/said/rows", os.O_WRONLY | os.O_CREAT)
while True:
    n += 1
    db.execute("insert into t values(?, ?)", (n, random.randbytes(random.randrange(6000))))
    os.pwrite(rows, b"%012d\n" % n, 0)
"""
POSTGRES = r"""
set -e
bin=/usr/lib/postgresql/15/bin
export PGDATA=/var/lib/postgresql/kept PGHOST=/tmp PGUSER=postgres PGDATABASE=postgres
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
cd /tmp
# It begins with a database that was made whole.
if ! [ -e $PGDATA.made ]; then
    rm -rf $PGDATA
    as $bin/initdb -k -A trust >/tmp/initdb.log 2>&1 || { cat /tmp/initdb.log; exit 1; }
    printf "unix_socket_directories = '/tmp'\nlisten_addresses = ''\n" >>$PGDATA/postgresql.conf
    sync
    : >$PGDATA.made
    sync
fi
rm -f $PGDATA/postmaster.pid /tmp/.s.PGSQL.*
as $bin/pg_ctl -w -t 120 -l /var/lib/postgresql/log start >/dev/null || { cat /var/lib/postgresql/log; exit 1; }
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
sql -c 'create table if not exists t(n int primary key, v text)' 2>/dev/null
$bin/pg_amcheck --install-missing --heapallindexed -d postgres || exit 1
n=$(sql -c 'select count(*) from t')
[ "$(sql -c 'select coalesce(max(n), 0) from t')" = "$n" ]
echo "$n" >/said/found
coproc PSQL { sql; }
while true; do
    n=$((n + 1))
    echo "insert into t values ($n, repeat(md5('$n'), $((RANDOM % 100)))) returning n;" >&"${PSQL[1]}"
    read -r -t 60 got <&"${PSQL[0]}"
    [ "$got" = "$n" ]
    printf '%012d\n' "$n" 1<>/said/rows
done
"""
# Image and command.
DATABASES = {
    "sqlite": ["debian", "env", "JOURNAL=delete", "python3", "-c", SQLITE],
    "sqlite-wal": ["debian", "env", "JOURNAL=wal", "python3", "-c", SQLITE],
    "postgres": ["servers", "bash", "-c", POSTGRES],
}


def number(path: pathlib.Path) -> int:
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


class Database:
    """A domain with a database on its kept files."""

    def __init__(self, own, image, command, said) -> None:
        self.own, self.said = own, said
        said.mkdir(mode=0o777)
        wanted = {
            "image": image,
            "name": "db",
            "command": command,
            "files": {"mounts": [{"type": "bind", "source": str(said), "target": "/said"}]},
        }
        own.post("/v1/domains?start=true", wanted).ok()

    def rows(self) -> int:
        return number(self.said / "rows")

    def more(self, count=ROWS) -> int:
        """Waits for so many further rows; the last one's number."""
        least = self.rows() + count

        def there():
            assert self.state() == "running", self.said_last()
            return self.rows() >= least

        eventually(there, "it goes on")
        return self.rows()

    def said_last(self) -> str:
        logs = self.own.cli("logs", "db")
        return (logs.stdout + logs.stderr)[-3000:].decode()

    def state(self):
        return self.own.get("/v1/domains/db").ok()["state"]

    def kill_services(self) -> None:
        pids = [p for keeper in self.own.keepers() for p in of_any_kind(keeper) if b"storage-service" in words(p)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def kill_keepers(self) -> None:
        for pid in self.own.keepers():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.own.get("/v1/domains/db/stats").status == 200, "another keeper")

    def kill_supervisor(self) -> None:
        self.own.kill()
        self.own.start()

    def kill_domain(self) -> None:
        """All that was acknowledged is found again, and one transaction more at most."""
        os.kill(self.own.get("/v1/domains/db").ok()["pid"], signal.SIGKILL)
        self.own.post("/v1/domains/db/wait").ok()
        self.check_after()

    def check_after(self) -> None:
        acknowledged = self.rows()
        (self.said / "found").unlink(missing_ok=True)
        self.own.post("/v1/domains/db/start", {}).ok()

        def found():
            assert self.state() == "running", self.said_last()
            return (self.said / "found").exists() and (self.said / "found").read_text().endswith("\n")

        eventually(found, "it begins")
        assert number(self.said / "found") in (acknowledged, acknowledged + 1)


VICTIMS = ["services", "keepers", "supervisor", "domain"]
# PostgreSQL begins for seconds: only its own end every day, all the others in `make soak`.
DAILY = [("sqlite-wal", v) for v in VICTIMS] + [("sqlite", "domain"), ("postgres", "domain")]
ALL = [(d, v) for d in DATABASES for v in VICTIMS]


@pytest.mark.parametrize("database, victim", ALL if "DOPPEL_DATABASE_KILLS" in os.environ else DAILY)
def test_no_acknowledged_transaction_is_lost(new_doppeld, tmp_path, database, victim):
    own = new_doppeld().start()
    image, *command = DATABASES[database]
    if not have_image(image):
        pytest.skip(f"no image {image}: make test-images")
    db = Database(own, image, command, tmp_path / "said")
    for _ in range(KILLS):
        db.more()
        time.sleep(random.random() * 0.2)
        getattr(db, f"kill_{victim}")()
    last = db.more()
    os.kill(own.get("/v1/domains/db").ok()["pid"], signal.SIGKILL)
    own.post("/v1/domains/db/wait").ok()
    db.check_after()
    print(json.dumps({"database": database, "victim": victim, "kills": KILLS, "rows": last}))
