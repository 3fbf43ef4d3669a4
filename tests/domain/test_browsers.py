"""Browsers without a screen: pages become text, pictures and documents. The image is large: only with TEST_ALL=1."""
import pytest
from images import long, need_image

PAGE = """<html><body style="background: rgb(0, 128, 255)"><p id=a>before</p>
<script>document.getElementById("a").textContent = "after " + [3, 1, 2].sort().join("")</script></body></html>"""


@pytest.fixture(autouse=True)
def browsers():
    long("browsers take a minute")
    need_image("browsers", "image-browsers")


def browse(domain, command, shows):
    """What `shows` prints after a browser has seen the page."""
    script = f"cat > /tmp/a.html; mkdir /tmp/out; ( {command} ) >&2; {shows}"
    return domain.run(
        "sh", "-c", script, stdin=PAGE.encode(), image="browsers", opts=["--memory", "4g"], timeout=180
    ).ok()


@pytest.mark.parametrize("gpu", ["", "--in-process-gpu"])
def test_chromium(domain, gpu):
    """Its own sandbox is off: the domain is one."""
    run = f"chromium --headless --no-sandbox {gpu}"
    page = "file:///tmp/a.html"
    assert "after 123" in browse(domain, f"{run} --dump-dom {page} > /tmp/out/dom", "cat /tmp/out/dom")
    assert "PNG" in browse(domain, f"{run} --screenshot=/tmp/out/a.png {page}", "head -c 4 /tmp/out/a.png | tail -c 3")
    assert "%PDF" in browse(domain, f"{run} --print-to-pdf=/tmp/out/a.pdf {page}", "head -c 4 /tmp/out/a.pdf")


def test_firefox(domain):
    run = "firefox-esr --headless --screenshot /tmp/out/a.png file:///tmp/a.html"
    assert "PNG" in browse(domain, run, "head -c 4 /tmp/out/a.png | tail -c 3")
