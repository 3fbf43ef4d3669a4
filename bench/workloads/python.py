"""Start-up of the Python interpreter."""
from harness.inside import timed

UNIT = "ns"
TARGETS = {"python3 start-up": 1.0}


def measure(runtime, opt):
    count = 5 if opt.quick else 20
    return {
        "python3 start-up": timed(runtime, "/usr/bin/python3", "-c", "pass", count=count),
        "python3 importing 12 modules": timed(
            runtime,
            "/usr/bin/python3",
            "-c",
            "import argparse, asyncio, decimal, email, http.client, json, logging, multiprocessing, sqlite3, ssl, "
            "unittest, xml.dom",
            count=count,
        ),
    }
