"""OCI images from a real registry and from archives of real tools, against what umoci unpacks."""
import json
import shutil
import socket
import ssl
import subprocess

import oci
import pytest

# What `htpasswd -Bbn me secret` prints.
BCRYPT_OF_SECRET = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"

def umoci_digest(store, layout, name, tmp_path):
    """The root image of what umoci unpacks: the tree that ours must be equal to, bit by bit."""
    bundle = tmp_path / f"bundle-{name}"
    oci.tool("umoci", "unpack", "--image", f"{layout}:{name}", bundle)
    return store.json("import", bundle / "rootfs", f"umoci-{name}")["digest"]


def test_pull_gives_what_umoci_unpacks(registry, layout, store, tmp_path):
    for name in ("base", "app"):
        pulled = store.json("pull", f"{registry.host}/team/{name}:1")
        assert pulled["name"] == f"{registry.host}/team/{name}:1" and not pulled["up_to_date"]
        store.ok("image", "inspect", pulled["name"])
        assert pulled["digest"] == umoci_digest(store, layout, name, tmp_path)
    store.check()


def test_run_honours_the_configuration(registry, store):
    image = f"{registry.host}/team/app:1"
    store.ok("image", "pull", image)
    assert store.ok("run", image) == "uid=33(web) gid=50(staff)\n/opt\nimage /srv\n"
    assert store.ok("run", "-e", "A=mine", image, "echo $A") == "mine\n"
    assert store.ok("run", "-w", "/etc", "-u", "root", image, "pwd; id -u") == "/etc\n0\n"
    assert store.ok("run", "-u", "web", image, "id -g; id -G") == "34\n34 29\n"
    assert store.ok("run", "-u", "4242:staff", image, "id -u; id -g") == "4242\n50\n"
    assert store.ok("run", "--entrypoint", "/bin/echo", image, "a", "b") == "a b\n"
    assert store.ok("run", "--entrypoint", "/bin/echo", image) == "\n"
    assert store.ok("run", "--entrypoint", "", image, "/bin/cat", "/usr/lib/file") == "text\n"
    assert "no user" in store.fails("run", "-u", "nobody", image)
    # Whiteouts, as a program sees them.
    assert store.ok("run", image, "test -e /etc/motd || echo gone; ls /var/cache") == "gone\ner\n"
    config = store.json("inspect", "--quick", image)["oci"]["config"]
    assert (
        config["StopSignal"] == "SIGINT"
        and config["Labels"] == {"x": "y"}
        and list(config["ExposedPorts"]) == ["80/tcp"]
    )
    base = f"{registry.host}/team/base:1"
    store.ok("image", "pull", base)
    assert "no command given" in store.fails("run", base)


def test_layers_are_shared(registry, layout, store):
    blobs = lambda name: set(store.json("inspect", "--quick", name)["oci"]["blobs"])
    store.ok("image", "pull", f"{registry.host}/team/base:1", "--name", "base")
    before = set(store.files("blobs"))
    store.ok("image", "pull", f"{registry.host}/team/app:1", "--name", "app")
    shared = blobs("base") & blobs("app")
    assert len(shared) == 1
    assert before < set(store.files("blobs"))
    store.ok("image", "rm", "base")
    store.check()
    assert {d.replace(":", "-") for d in blobs("app")} == set(store.files("blobs"))
    store.ok("image", "rm", "app")
    assert store.check() == [] and store.files("blobs") == []


def test_pull_again_and_by_digest(registry, store):
    first = store.json("pull", f"{registry.host}/team/app:1", "--name", "one")
    again = store.json("pull", f"{registry.host}/team/app:1", "--name", "one")
    other = store.json("pull", f"{registry.host}/team/app@{first['manifest']}", "--name", "two")
    assert again["up_to_date"] and other["up_to_date"] and other["digest"] == first["digest"]
    assert "404" in store.fails("image", "pull", f"{registry.host}/team/app@sha256:{'0' * 64}")
    assert "404" in store.fails("image", "pull", f"{registry.host}/team/nothing:1")
    assert "amd64" in store.fails(
        "image", "pull", f"{registry.host}/team/app:1", "--platform", "linux/arm64", "--name", "x"
    )
    store.check()


@pytest.mark.parametrize("how", ["zstd", "docker-v2"])
def test_other_formats(registry, layout, store, tmp_path, how):
    args = ["--dest-compress-format", "zstd"] if how == "zstd" else ["--format", "v2s2"]
    to = f"{registry.host}/team/{how}:1"
    oci.skopeo("copy", "--dest-tls-verify=false", *args, f"oci:{layout}:app", f"docker://{to}")
    assert store.json("pull", to)["digest"] == umoci_digest(store, layout, "app", tmp_path)


def test_an_index_has_several_platforms(registry, layout, store, tmp_path):
    """umoci makes no indexes: we put one that leads to `base` and `app` into the registry."""
    entries = []
    for name, platform in (("base", "arm64"), ("app", "amd64")):
        raw = (
            oci.skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{registry.host}/team/app:1")
            if name == "app"
            else None
        )
        index = json.loads((layout / "index.json").read_text())["manifests"]
        found = next(m for m in index if m["annotations"]["org.opencontainers.image.ref.name"] == name)
        assert raw is None or json.loads(raw)["config"]
        entries.append({
            "mediaType": found["mediaType"],
            "digest": found["digest"],
            "size": found["size"],
            "platform": {"os": "linux", "architecture": platform},
        })
        oci.skopeo(
            "copy",
            "--dest-tls-verify=false",
            "--preserve-digests",
            f"oci:{layout}:{name}",
            f"docker://{registry.host}/team/many:{name}",
        )
    text = json.dumps({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": entries,
    })
    (tmp_path / "index").write_text(text)
    oci.tool(
        "curl",
        "-sSf",
        "-X",
        "PUT",
        "-H",
        "Content-Type: application/vnd.oci.image.index.v1+json",
        "--data-binary",
        f"@{tmp_path}/index",
        f"http://{registry.host}/v2/team/many/manifests/all",
    )
    assert store.json("pull", f"{registry.host}/team/many:all")["manifest"] == entries[1]["digest"]
    error = store.fails("image", "pull", f"{registry.host}/team/many:all", "--platform", "linux/s390x")
    assert "linux/arm64" in error
    # The entry says arm64, its configuration does not.
    assert "amd64" in store.fails("image", "pull", f"{registry.host}/team/many:all", "--platform", "linux/arm64")


def test_archives(registry, layout, store, tmp_path):
    want = umoci_digest(store, layout, "app", tmp_path)
    docker, archive = tmp_path / "docker.tar", tmp_path / "oci.tar"
    oci.skopeo("copy", f"oci:{layout}:app", f"docker-archive:{docker}:team/app:1")
    oci.skopeo("copy", f"oci:{layout}:app", f"oci-archive:{archive}:app")
    subprocess.run(["gzip", "-k", docker], check=True)
    for path in (docker, archive, f"{docker}.gz"):
        made = store.json("import", path, "imported")
        assert made["digest"] == want and made["oci"]["config"]["User"] == "web:staff", path
    with open(docker, "rb") as f:
        assert store.json("import", "-", "stdin", stdin=f)["digest"] == want
    assert "choose one" in store.fails("image", "import", layout, "imported")
    assert store.json("import", "--ref", "app", layout, "imported")["digest"] == want
    assert "no such image" in store.fails("image", "import", "--ref", "x", layout, "imported")
    store.check()


def test_push_what_was_pulled(registry, layout, store, tmp_path):
    pulled = store.json("pull", f"{registry.host}/team/app:1", "--name", "app")
    pushed = store.json("push", "app", f"{registry.host}/copy/app:2")
    assert pushed["manifest"] == pulled["manifest"] and pushed["sent"] > 0
    again = store.json("push", "app", f"{registry.host}/copy/app:3")
    assert again["sent"] == 0 and again["existed"] == pushed["sent"]
    # A tool that is not ours reads it.
    oci.skopeo("copy", "--src-tls-verify=false", f"docker://{registry.host}/copy/app:2", f"oci:{tmp_path}/back:app")
    assert umoci_digest(store, tmp_path / "back", "app", tmp_path) == pulled["digest"]


def test_push_and_save_what_was_imported(registry, store, tmp_path):
    """A directory becomes an image of one layer, which umoci unpacks to the same tree."""
    root = tmp_path / "root"
    root.mkdir()
    oci.small_root(root)
    made = store.json("import", root, "mine")
    store.ok("image", "push", "mine", f"{registry.host}/mine/mine:1")
    oci.skopeo("copy", "--src-tls-verify=false", f"docker://{registry.host}/mine/mine:1", f"oci:{tmp_path}/back:mine")
    bundle = tmp_path / "bundle"
    oci.tool("umoci", "unpack", "--image", f"{tmp_path}/back:mine", bundle)
    assert store.json("import", bundle / "rootfs", "back")["digest"] == made["digest"]
    assert store.json("pull", f"{registry.host}/mine/mine:1")["digest"] == made["digest"]
    archive = tmp_path / "saved.tar"
    store.ok("image", "save", "mine", "-o", archive)
    for kind in ("docker-archive", "oci-archive"):
        assert json.loads(oci.skopeo("inspect", f"{kind}:{archive}"))["Layers"], kind
    other = oci.Store(tmp_path / "other")
    assert other.json("import", archive, "mine")["digest"] == made["digest"]
    assert store.run("image", "save", "mine").stdout == archive.read_bytes()
    store.check()


def test_credentials(layout, store, tmp_path):
    users = tmp_path / "htpasswd"
    users.write_text(f"me:{BCRYPT_OF_SECRET}\n")
    registry = oci.Registry(tmp_path, auth=users)
    try:
        oci.skopeo(
            "copy",
            "--dest-tls-verify=false",
            "--dest-creds",
            "me:secret",
            f"oci:{layout}:base",
            f"docker://{registry.host}/team/base:1",
        )
        assert "401" in store.fails("image", "pull", f"{registry.host}/team/base:1")
        config = tmp_path / "home/.docker/config.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"auths": {registry.host: {"auth": "bWU6c2VjcmV0"}}}))
        store.ok("image", "pull", f"{registry.host}/team/base:1", "--name", "base")
        store.ok("image", "push", "base", f"{registry.host}/team/base:2")
        config.write_text(json.dumps({"auths": {registry.host: {"auth": "bWU6d3Jvbmc="}}}))
        assert "401" in store.fails("image", "pull", f"{registry.host}/team/base:2")
    finally:
        registry.stop()


def test_tokens(faulty, layout, store, tmp_path):
    """A token server gets the password when it is the registry itself; one elsewhere, in plain HTTP, does not."""
    config = tmp_path / "home/.docker/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"auths": {faulty.host: {"auth": "bWU6c2VjcmV0"}}}))
    faulty.realm = f"http://{faulty.host}"
    store.ok("image", "pull", f"{faulty.host}/team/app:1", "--name", "app")
    assert faulty.asked == [("/token?scope=repository%3Ateam%2Fapp%3Apull&service=tests", "Basic bWU6c2VjcmV0")]
    other = oci.Faulty(layout, "app")
    try:
        store.ok("image", "rm", "app")
        faulty.realm = f"http://{other.host}"
        store.ok("image", "pull", f"{faulty.host}/team/app:1", "--name", "app")
        assert [auth for _, auth in other.asked] == [None]
    finally:
        other.stop()


def test_tls(layout, store, tmp_path):
    """A registry that is not this host's, by its name, is spoken to over TLS, with a certificate that must be right."""
    host = socket.gethostname()
    try:
        address = socket.gethostbyname(host)
    except OSError:
        address = ""
    if host.startswith("localhost") or not address.startswith("127.") or not shutil.which("openssl"):
        pytest.skip("this host's name does not lead to itself")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    oci.tool(
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        f"/CN={host}",
        "-addext",
        f"subjectAltName=DNS:{host}",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        key,
        "-out",
        cert,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    registry = oci.Faulty(layout, "app", tls=context)
    try:
        port = registry.server.server_address[1]
        reference = f"{host}:{port}/team/app:1"
        error = store.fails("image", "pull", reference, "--name", "app")
        assert "certificate" in error.lower(), error
        store.env["SSL_CERT_FILE"] = str(cert)
        store.env["NO_PROXY"] = store.env["no_proxy"] = host
        store.ok("image", "pull", reference, "--name", "app")
        assert registry.log
    finally:
        registry.stop()
