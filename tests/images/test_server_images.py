"""Images through the supervisor: pulled from and pushed to a real registry, run by their configuration, imported."""
import importlib.util
import os
import subprocess

import oci
import pytest


@pytest.fixture(scope="module")
def server(tools):
    """A `doppeld` over a directory of its own, as the tests of tests/supervisor make it."""
    spec = importlib.util.spec_from_file_location("supervisor_fixtures", oci.ROOT / "tests/supervisor/conftest.py")
    fixtures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fixtures)
    if not os.path.exists(fixtures.DOPPELD):
        pytest.skip(f"no {fixtures.DOPPELD}: make build")
    one = fixtures.Doppeld().start()
    yield one
    one.close()


def transfer(server, verb, **wanted):
    """Starts a transfer and gives how it ended."""
    begun = server.post(f"/v1/images/{verb}", wanted).ok(202)
    return server.get(f"/v1/operations/{begun['id']}?wait=true", timeout=120).ok()


@pytest.fixture(scope="module")
def app(server, registry):
    name = f"{registry.host}/team/app:1"
    done = transfer(server, "pull", reference=name)
    assert done["state"] == "succeeded", done
    return name


def test_pulled_image_runs_by_its_configuration(server, app):
    image = server.get(f"/v1/images/{app.replace('/', '%2F')}").ok()
    assert image["name"] == app
    run = lambda *argv: server.cli("run", "--rm", *argv)
    p = run(app)
    assert (p.returncode, p.stdout) == (0, b"uid=33(web) gid=50(staff)\n/opt\nimage /srv\n"), p
    assert run("-u", "root", "-e", "A=mine", "-w", "/etc", app, "id -u; pwd; echo $A").stdout == b"0\n/etc\nmine\n"
    assert run("--entrypoint", "/bin/echo", app, "a").stdout == b"a\n"
    made = server.post("/v1/domains", {"image": app, "name": "conf"}).ok(201)["domain"]["config"]
    assert made["stop_signal"] == "SIGINT" and made["labels"] == {"x": "y"} and made["user"] == "web:staff"
    # Its image is kept while it is there.
    server.delete(f"/v1/images/{app.replace('/', '%2F')}").problem(409, "in_use")
    server.delete("/v1/domains/conf").ok(204)


def test_supplementary_groups_of_an_image(server, app):
    """The groups that list the user count where the caller names none."""
    assert server.cli("run", "--rm", "-u", "web", app, "id -u; id -G").stdout == b"33\n34 29\n"
    assert server.cli("run", "--rm", "-u", "web:www", app, "id -G").stdout == b"34\n"
    p = server.cli("run", "--rm", "-u", "nobody-here", app)
    assert p.returncode == 125 and b"nobody-here" in p.stderr


def test_run_pulls_if_told_to(server, registry, store):
    base = f"{registry.host}/team/base:1"
    p = server.cli("run", "--rm", base, "/bin/true")
    assert p.returncode == 125 and b"doppel pull" in p.stderr, p.stderr
    for when in ("missing", "missing", "always"):
        assert server.cli("run", "--rm", "--pull", when, base, "/bin/echo", when).stdout == f"{when}\n".encode()
    assert store.ok("run", "--pull", "missing", base, "/bin/echo", "alone") == "alone\n"
    p = server.cli("run", "--rm", "--pull", "always", f"{registry.host}/team/nothing:1")
    assert p.returncode == 125 and b"nothing" in p.stderr, p.stderr


def test_push_gives_the_registry_what_was_pulled(server, registry, app, tmp_path):
    to = f"{registry.host}/other/copy:2"
    done = transfer(server, "push", name=app, reference=to)
    assert done["state"] == "succeeded", done
    digest = lambda ref: oci.skopeo("inspect", "--tls-verify=false", "--format", "{{.Digest}}", f"docker://{ref}")
    assert digest(to) == digest(app)


def test_refusals_of_a_registry_are_told(server, registry):
    done = transfer(server, "pull", reference=f"{registry.host}/team/nothing:1")
    assert done["state"] == "failed" and done["problem"]["code"] in ("registry", "image_not_found"), done
    done = transfer(server, "pull", reference="localhost:1/no/body:1")
    assert done["state"] == "failed" and done["problem"]["code"] == "registry", done


def test_archives_are_imported(server, layout, tmp_path):
    """What skopeo writes as `docker save` does."""
    archive = tmp_path / "app.tar"
    oci.skopeo("copy", f"oci:{layout}:app", f"docker-archive:{archive}:saved:1")
    with open(archive, "rb") as body:
        image = server.post(
            "/v1/images/import?name=saved", body, headers={"Content-Length": str(archive.stat().st_size)}, timeout=120
        ).ok(201)
    assert image["name"] == "saved"
    assert server.cli("run", "--rm", "--entrypoint", "/bin/cat", "saved", "/usr/lib/file").stdout == b"text\n"
    server.delete("/v1/images/saved").ok(204)
    assert (
        subprocess.run(
            [oci.DOPPEL, "image", "inspect", "--quick", "saved"],
            env={**os.environ, "DOPPEL_STORE": str(server.store)},
            capture_output=True,
        ).returncode
        == 125
    )
