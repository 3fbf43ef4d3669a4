"""Directories and files of the host in a domain of `doppel run` alone: -v, --mount, named volumes."""
import json
import os
import subprocess
import uuid

import pytest
from conftest import DOPPEL, Result, call


@pytest.fixture(params=["para", "paene"])
def volumes(domain, request):
    """`doppel run` without a supervisor, and what is to be removed after it."""
    if request.param == "paene" and os.geteuid() != 0:
        pytest.skip("paene domains need root")
    return Volumes(domain, request.param)


class Volumes:
    def __init__(self, domain, kind: str) -> None:
        self.domain, self.kind = domain, kind

    def run(self, script: str, *opts: str, image: str = "busybox") -> Result:
        opts = ("--standalone", "--kind", self.kind, *opts)
        return self.domain.run("sh", "-c", script, image=image, opts=opts)


def command(*args: str) -> Result:
    """`doppel volume ...` on the store alone."""
    env = {name: value for name, value in os.environ.items() if name != "DOPPEL_HOST"}
    return call([DOPPEL, "volume", *args], b"", 60, env=env)


@pytest.fixture
def name():
    """A volume's name that nobody has."""
    one = "test-" + uuid.uuid4().hex[:10]
    yield one
    command("rm", "-f", one)


def test_a_directory_is_the_hosts(volumes, tmp_path):
    """What either writes the other reads, owners and modes included; read-only it stays as it is."""
    (tmp_path / "given").write_text("from the host\n")
    os.chmod(tmp_path / "given", 0o640)
    script = "cat /data/given; stat -c %a:%u:%s /data/given; mkdir -m 750 /data/d && echo made > /data/d/f && ls /data"
    out = volumes.run(script, "-v", f"{tmp_path}:/data").ok()
    assert out == f"from the host\n640:{os.getuid()}:14\nd\ngiven\n"
    assert (tmp_path / "d/f").read_text() == "made\n" and (tmp_path / "d").stat().st_mode & 0o777 == 0o750
    again = volumes.run("rm -r /data/d; mv /data/given /data/kept; ls /data", "-v", f"{tmp_path}:/data")
    assert again.ok() == "kept\n" and [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_read_only(volumes, tmp_path):
    (tmp_path / "f").write_text("kept\n")
    script = "cat /data/f; echo x > /data/f; touch /data/g; rm /data/f; mount -o remount,rw /data; echo y > /data/f"
    for options in (("-v", f"{tmp_path}:/data:ro"), ("--mount", f"type=bind,src={tmp_path},dst=/data,readonly")):
        r = volumes.run(script, *options)
        assert r.out == "kept\n" and r.err.count("Read-only file system") >= 3, r.err
        assert (tmp_path / "f").read_text() == "kept\n" and len(list(tmp_path.iterdir())) == 1


def test_a_file(volumes, tmp_path):
    """One file alone, over one of the image, or where there is none."""
    file = tmp_path / "a file,with=signs"
    file.write_text("root:x:0:0::/:/bin/sh\n")
    for target in ("/etc/passwd", "/new/place/file"):
        script = f"cat {target}; echo more >> {target}"
        r = volumes.run(script, "--mount", f'type=bind,"src={file}",dst={target}')
        assert r.ok().startswith("root:x:0:0::/:/bin/sh\n")
        assert file.read_text().endswith("more\n")
        file.write_text("root:x:0:0::/:/bin/sh\n")


def test_a_source_is_there_or_made(volumes, tmp_path):
    """As Docker has it: -v makes what is missing, --mount does not; links in the source are followed."""
    r = volumes.run("true", "--mount", f"type=bind,src={tmp_path}/none,dst=/data")
    assert r.code == 125 and f"{tmp_path}/none, does not exist" in r.err, r.err
    volumes.run("echo x > /data/f", "-v", f"{tmp_path}/made/deep:/data").ok()
    assert (tmp_path / "made/deep/f").read_text() == "x\n"
    (tmp_path / "link").symlink_to("made")
    assert volumes.run("cat /data/deep/f", "-v", f"{tmp_path}/link:/data").ok() == "x\n"


def test_links_do_not_lead_out(volumes, tmp_path):
    """A link in a directory is the domain's: it leads to the domain's own files, however it was made."""
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "in/up").symlink_to("../secret")
    (tmp_path / "in/full").symlink_to(tmp_path / "secret")
    r = volumes.run("cat /data/up /data/full; cat /data/../../secret; ls -a /data/..", "-v", f"{tmp_path}/in:/data")
    assert "secret" not in r.out.split() and r.err.count("No such file") == 3, (r.out, r.err)


def test_a_named_volume_stays(volumes, name):
    """It outlives the domains that have it, gets what the image has there, and goes when it is removed."""
    script = "ls /etc/passwd >/dev/null && n=$(cat /etc/runs 2>/dev/null || echo 0) && echo $((n + 1)) > /etc/runs"
    script += "; cat /etc/runs"
    assert [volumes.run(script, "-v", f"{name}:/etc").ok() for _ in range(3)] == ["1\n", "2\n", "3\n"]
    found = json.loads(command("inspect", name).ok())[0]
    assert found["name"] == name and not found["anonymous"] and "passwd" in os.listdir(found["mountpoint"])
    assert name in command("ls", "-q").ok().split()
    assert command("rm", name).ok() == f"{name}\n" and not os.path.exists(found["mountpoint"])
    assert volumes.run("ls /data", "-v", f"{name}:/data:nocopy").ok() == ""


def test_volumes_without_a_name_go(volumes):
    before = command("ls", "-q").ok()
    assert volumes.run("touch /data/x; ls /data", "-v", "/data").ok() == "x\n"
    assert command("ls", "-q").ok() == before


def test_in_use(volumes, name):
    """Nobody removes what a running domain has."""
    argv = volumes.domain.argv(
        "sh",
        "-c",
        "echo up; exec cat",
        image="busybox",
        opts=("--standalone", "--kind", volumes.kind, "-v", f"{name}:/data"),
    )
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"up\n"
        r = command("rm", name)
        assert r.code == 1 and "is in use" in r.err, r.err
        assert name not in command("prune", "-af").ok().split()
        p.stdin.close()
    assert p.returncode == 0
    assert command("rm", name).code == 0


def test_mounts_lie_on_mounts(volumes, tmp_path, name):
    """Whatever their order on the command line, a mount below another one is there."""
    (tmp_path / "f").write_text("host\n")
    opts = ("-v", f"{tmp_path}:/a/b/c", "-v", f"{name}:/a", "--tmpfs", "/a/b")
    out = volumes.run("cat /a/b/c/f; touch /a/x /a/b/y; ls -R /a", *opts).ok()
    assert out.startswith("host\n") and "x" in out.split() and "y" in out.split()
    found = json.loads(command("inspect", name).ok())[0]["mountpoint"]
    assert sorted(os.listdir(found)) == ["b", "x"]


@pytest.mark.parametrize(
    "options,why",
    [
        (("-v", "/etc:relative"), "no place to mount at"),
        (("-v", "/etc:/"), "no place to mount at"),
        (("-v", "a/b:/data"), "given by its absolute path"),
        (("-v", "/etc:/data:rw:x"), "too many parts"),
        (("-v", "/etc:/data:shared"), "only rprivate"),
        (("-v", "/etc:/data:nosuch"), "no option of a bind"),
        (("-v", "/dev/null:/data"), "neither a directory nor a regular file"),
        (("-v", "/etc:/data", "--tmpfs", "/data"), "a target twice"),
        (("--mount", "type=bind,dst=/data"), "needs a source"),
        (("--mount", "type=volume,src=/x,dst=/data"), "given by its absolute path"),
        (("--mount", "type=image,src=x,dst=/data"), "bind, volume and tmpfs"),
    ],
)
def test_what_is_refused(domain, options, why):
    r = domain.run("true", image="busybox", opts=("--standalone", *options))
    assert r.code != 0 and why in r.err, r.err


def test_filters_and_labels(name):
    command("create", "--label", "team=a", "--label", "test", name).ok()
    for filters, there in (
        (("label=team=a",), True),
        (("label=test", f"name={name[:8]}"), True),
        (("label=team=b",), False),
        (("dangling=true",), True),
        (("dangling=false",), False),
    ):
        args = [word for one in filters for word in ("--filter", one)]
        assert (name in command("ls", "-q", *args).ok().split()) == there, filters
    assert command("ls", "--format", "{{.Name}} {{.Labels}}", "-f", f"name={name}").ok() == f"{name} team=a,test=\n"
    assert command("ls", "-f", "colour=red").code == 125
    assert command("create", "-x").code == 125 and command("create", "a/b").code != 0
    assert command("prune", "-af", "--filter", "label=team=b").ok() == ""
    assert name in command("prune", "-af", "--filter", "label=team=a").ok().split()
