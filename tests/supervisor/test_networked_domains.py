"""Programs of two domains that reach each other by address: databases and shells; and many servers at once."""
import collections
import concurrent.futures
import os
import random
import shlex
import time

import leftovers
import pytest
from conftest import have_image
from test_networks import made, nat, page  # noqa: F401 (`made` is a fixture)

SERVERS = int(os.environ.get("DOPPEL_SERVERS", "40"))

POSTGRES = """
export PGDATA=/tmp/pg; bin=/usr/lib/postgresql/15/bin
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
as $bin/initdb -A trust >/dev/null || exit 1
echo "host all all 10.88.0.0/16 trust" >>$PGDATA/pg_hba.conf
exec setpriv --reuid=postgres --regid=postgres --clear-groups $bin/postgres -k /tmp -h 0.0.0.0
"""

PGBENCH = """
export PGHOST=%s PGUSER=postgres PGDATABASE=postgres
until psql -Xqc 'select 1' >/dev/null 2>&1; do sleep 0.1; done
pgbench -i -q -s 1 2>/dev/null && pgbench -n -t 100 -c 4 -j 2 | grep 'transactions actually processed'
psql -XAtc 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), count(*) from pgbench_history'
"""  # noqa: E501

SSHD = """
mkdir -p /run/sshd /root/.ssh && chmod 755 /run/sshd && chmod 700 /root/.ssh
ssh-keygen -A >/dev/null && echo "$KEY" >/root/.ssh/authorized_keys && chmod 600 /root/.ssh/authorized_keys
usermod -p '*' root
exec /usr/sbin/sshd -D -e -o PermitRootLogin=prohibit-password
"""

SSH = """
o="-i /tmp/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
until ssh $o root@%(host)s true 2>/dev/null; do sleep 0.1; done
ssh $o root@%(host)s hostname
head -c 3000000 /dev/urandom >/tmp/data
scp -q $o /tmp/data root@%(host)s:there && ssh $o root@%(host)s cat there | cmp - /tmp/data && echo same
"""


@pytest.fixture
def servers(binaries):
    if not have_image("servers"):
        pytest.skip("no image servers: make test-images")
    return "servers"


def inside(d, name, script, timeout=120):
    """What a script prints that runs in a domain."""
    p = d.cli("exec", name, "sh", "-c", script, timeout=timeout)
    assert p.returncode == 0, (p.stdout, p.stderr)
    return p.stdout.decode()


def test_postgresql_client_and_server(supervisor, made, servers):
    server = made("pg-server", nat(), ["sh", "-c", POSTGRES], image=servers)
    made("pg-client", nat(), ["sleep", "1000"], image=servers)
    out = inside(supervisor, "pg-client", PGBENCH % server["network"]["ip4"])
    assert out.splitlines() == ["number of transactions actually processed: 400/400", "t|400"], out


def test_ssh(supervisor, made, servers):
    made("ssh-client", nat(), ["sleep", "1000"], image=servers)
    key = inside(supervisor, "ssh-client", "ssh-keygen -q -t ed25519 -N '' -f /tmp/key && cat /tmp/key.pub")
    server = made("ssh-server", nat(), ["sh", "-c", f"KEY={shlex.quote(key.strip())}\n{SSHD}"], image=servers)
    assert inside(supervisor, "ssh-client", SSH % {"host": server["network"]["ip4"]}) == "ssh-server\nsame\n"


def test_many_web_servers_asked_by_zipfs_law(new_doppeld, busybox):
    """As Denali's (§4.3): few of them get most of the requests."""
    d = new_doppeld().start()
    script = "mkdir /tmp/www; hostname >/tmp/www/index.html; exec httpd -f -p 80 -h /tmp/www"
    body = lambda i: {
        "image": busybox,
        "name": f"z{i}",
        "command": ["sh", "-c", script],
        "network": nat({"port": 80, "host_address": "127.0.0.1"}),
    }
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        domains = list(pool.map(lambda i: d.post("/v1/domains?start=true", body(i)).ok(201)["domain"], range(SERVERS)))
        assert len({x["network"]["ip4"] for x in domains}) == SERVERS
        assert list(pool.map(page, domains)) == [f"z{i}" for i in range(SERVERS)]
        dice = random.Random(20)
        wanted = dice.choices(range(SERVERS), [1 / (rank + 1) for rank in range(SERVERS)], k=20 * SERVERS)
        began = time.monotonic()
        answers = list(pool.map(lambda i: page(domains[i]), wanted))
        print(
            f"{len(wanted) / (time.monotonic() - began):.0f} requests a second, the most to one: "
            f"{collections.Counter(wanted).most_common(1)}"
        )
        assert answers == [f"z{i}" for i in wanted]
        list(pool.map(lambda i: d.delete(f"/v1/domains/z{i}?force=true").ok(), range(SERVERS)))
    leftovers.none_of(d)
    leftovers.none_at_all(d)
