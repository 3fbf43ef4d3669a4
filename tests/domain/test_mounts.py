"""What is mounted in a domain: --read-only, --tmpfs, --mount."""
import pytest

REMOUNTS = """
touch /etc/x; mount -o remount,rw /; touch /etc/y
mkdir /work/etc; mount --bind /etc /work/etc && { mount -o remount,rw /work/etc; touch /work/etc/z; }
echo kept > /work/x; cat /work/x; ls /etc/x /etc/y /etc/z 2>/dev/null; grep ' / ' /proc/mounts
"""


def test_a_read_only_root_stays_so(domain):
    """Not even root, who may mount, makes it writable again, by another name neither."""
    r = domain.run("sh", "-c", REMOUNTS, image="busybox", opts=("--read-only", "--tmpfs", "/work"))
    assert r.code == 0 and r.out.startswith("kept\n"), r.err
    assert r.err.count("Read-only file system") == 3 and r.err.count("permission denied") == 2, r.err
    assert [line.split()[3].split(",")[0] for line in r.out.splitlines()[1:]] == ["ro"], r.out


def test_files_in_memory(domain):
    """Directories that are missing are made; programs get no rights there unless asked for."""
    show = (
        "grep ' /a/b ' /proc/mounts; stat -c %a:%u /a/b; dd if=/dev/zero of=/a/b/f bs=1k count=2000 2>&1 | tail -1; pwd"
    )
    opts = ("--tmpfs", "/a/b:size=1m,mode=750,uid=7")
    r = domain.run("sh", "-c", show, image="busybox", workdir="/a/b/c", opts=opts)
    row, mode, full, where = r.ok().splitlines()
    assert row.split()[2] == "tmpfs" and {"rw", "nosuid", "nodev", "noexec"} <= set(row.split()[3].split(","))
    assert (mode, where) == ("750:7", "/a/b/c") and full == "1024+0 records out"
    run = "cp /bin/busybox /a/b && /a/b/busybox true; echo $?"
    assert domain.run("sh", "-c", run, image="busybox", opts=("--tmpfs", "/a/b")).ok() == "126\n"
    assert domain.run("sh", "-c", run, image="busybox", opts=("--tmpfs", "/a/b:exec")).ok() == "0\n"


@pytest.mark.parametrize(
    "options,why",
    [
        (("--tmpfs", "tmp"), "no place to mount at"),
        (("--tmpfs", "/tmp:size=much"), "no size"),
        (("--tmpfs", "/tmp:overlay"), "no option of a tmpfs"),
        (("--tmpfs", "/tmp", "--mount", "type=tmpfs,dst=/tmp"), "a target twice"),
        (("--tmpfs", "/bin/busybox"), "cannot mount /bin/busybox: not a directory"),
    ],
)
def test_what_cannot_be_mounted(domain, options, why):
    r = domain.run("true", image="busybox", opts=options)
    assert r.code != 0 and why in r.err, r.err


# Debian's mount, umount, findmnt, unshare and pivot_root. Each line says what went right.
TOOLS = r"""
set -e
mkdir -p /m/a /m/b /m/c; cd /m
mount -t tmpfs -o size=1m,mode=750 one a; [ "$(findmnt -n -o FSTYPE,SIZE /m/a)" = "tmpfs    1M" ] && echo tmpfs
mkdir a/x; mount --bind a/x b; [ "$(findmnt -n -o SOURCE /m/b)" = "one[/x]" ] && echo bind
mount -o remount,bind,ro b; touch b/f 2>/dev/null || echo read-only; touch a/x/f; umount b
mount --make-shared a; [ "$(findmnt -n -o PROPAGATION /m/a)" = shared ] && echo shared
mount --rbind a c; mount -t tmpfs two a/x; mountpoint -q c/x && echo propagated
mount --make-rslave c; umount c/x; mountpoint -q a/x && echo slave
umount a/x; umount c; mount --make-private a; mount --move a b; mountpoint -q b && ! mountpoint -q a && echo moved
umount b
unshare -m sh -c 'mount -t tmpfs own /m/a && touch /m/a/f'; [ ! -e /m/a/f ] && echo unshared
unshare -Urm sh -c 'mount -t tmpfs own /m/a && touch /m/a/f && mount --bind /m/a /m/b && [ -e /m/b/f ] && echo rootless'
unshare -Urm sh -c 'umount /proc 2>/dev/null || echo locked'
unshare -m sh -ec '
  mount -t tmpfs new /m/a; mkdir -p /m/a/old /m/a/proc; cd /m/a; pivot_root . old
  cd /; [ -d old/usr ]; libs=/old/usr/lib/x86_64-linux-gnu
  exec $libs/ld-linux-x86-64.so.2 --library-path $libs old/usr/bin/test -d /old/usr' && echo pivoted
umount -l /m/a 2>/dev/null || [ -z "$(ls /m/a)" ] && echo done
"""


def test_the_tools_of_debian(domain):
    r = domain.run("sh", "-c", TOOLS)
    assert r.out.split() == (
        "tmpfs bind read-only shared propagated slave moved unshared rootless locked pivoted done".split()
    ), (r.out, r.err)
