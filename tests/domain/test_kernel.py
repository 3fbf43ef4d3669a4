"""The guest kernel as it is built."""
import re
import subprocess

import pytest
from conftest import ROOT

HUGE_PAGE = 2 << 20


def test_the_code_fits_into_one_huge_page():
    """Every address space maps the code by one entry of its page table: with two, forks take a tenth longer."""
    built = list((ROOT / "target/kernel").glob("*/kernel/doppel-kernel"))
    if not built:
        pytest.skip("no kernel was built here")
    headers = subprocess.run(["readelf", "-lW", built[0]], capture_output=True, text=True, check=True).stdout
    [size] = re.findall(r"LOAD +\S+ +\S+ +\S+ +\S+ +(0x\w+) R E", headers)
    assert int(size, 16) <= HUGE_PAGE
