"""A Python interpreter that has imported what takes long, frozen before it looks at its request.

The request is the clone's arguments: numbers, one a `--arg`. The answer is their mean and standard deviation, and
which modules were warm.
"""
import sys


def imported(*names):
    """Those of the modules that could be imported."""
    found = []
    for name in names:
        try:
            __import__(name)
            found.append(name)
        except ImportError:
            pass
    return found


# Where the data libraries are missing, the heaviest modules of the standard library stand for them.
warm = imported("numpy", "pandas") or imported("asyncio", "concurrent.futures", "decimal", "email", "http.client",
    "http.server", "inspect", "json", "logging", "multiprocessing", "pydoc", "sqlite3", "ssl", "statistics", "unittest",
    "urllib.request", "xml.dom.minidom", "xmlrpc.client")

with open("/sys/power/state", "w") as state:
    state.write("freeze\n")

# From here on it is a clone (or the original, if it was not told to end).
numbers = [float(line) for line in open("/sys/doppel/args").read().split()]
if "numpy" in warm:
    import numpy

    mean, deviation = numpy.mean(numbers), numpy.std(numbers)
else:
    import statistics

    mean, deviation = statistics.fmean(numbers), statistics.pstdev(numbers)
clone = open("/sys/doppel/clone_index").read().strip()
print(f"clone {clone}: mean {mean:.3f}, deviation {deviation:.3f}, with {len(warm)} warm modules, {warm[0]} first")
