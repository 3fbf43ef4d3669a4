"""The guest kernel as it is built."""
import re
import subprocess

import pytest
from conftest import ROOT

# Of code; each is one entry of an address space's page table.
HUGE_PAGES = 2
HUGE_PAGE = 2 << 20


def test_the_code_fits_into_two_huge_pages():
    """The host keeps the code in huge pages of its cache: an address space is shown each by one entry."""
    built = list((ROOT / "target/kernel").glob("*/kernel/doppel-kernel"))
    if not built:
        pytest.skip("no kernel was built here")
    headers = subprocess.run(["readelf", "-lW", built[0]], capture_output=True, text=True, check=True).stdout
    [size] = re.findall(r"LOAD +\S+ +\S+ +\S+ +\S+ +(0x\w+) R E", headers)
    assert int(size, 16) <= HUGE_PAGES * HUGE_PAGE
