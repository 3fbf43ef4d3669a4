"""The workloads: one small module each, found by being in this folder.

A module has
    UNIT                    unit of its rows, a key of `harness.report.UNITS`
    TARGETS                 {row: ratio to native that is promised}; may be left out
    REPEATS                 how often it is measured if not as the command line says; may be left out
    QUICK                   how often in a quick run if not once; may be left out
    ALSO                    names of runtimes it wants besides those that every workload has; may be left out
    prepare(runtime)        makes what it needs once, before time is taken; may be left out
    measure(runtime, opt)   one measurement: {row: value}, or such pairs one by one, or (value, unit) where the unit
                            differs. A failure is a `harness.runtimes.Failed`, or a `Cannot` with the reason if the
                            runtime has no means for it. `opt.quick` asks for a short one; `opt.only` are the rows
                            wanted, empty for all.
    finish(results)         makes further files in the folder of results when all is measured; may be left out
Programs come from the images of the store (`harness.inside` times those of `debian`); a runtime that fails in the first
measurement, for want of an image for one, is left out of that workload. Rows appear in the order of ORDER, then of the
modules' names.
"""

import importlib
import pkgutil

ORDER = [
    "micro",
    "lmbench",
    "start",
    "many",
    "clone",
    "criu",
    "idle",
    "python",
    "git",
    "compile",
    "sqlite",
    "langs",
    "gohttp",
    "redis",
    "nginx",
    "apache",
    "postgres",
    "oltp",
    "files",
    "sysbench",
    "ssh",
    "network",
    "mtu",
    "hosting",
    "packing",
    "compute",
    "neighbours",
    "suspend",
    "isolation",
    "sharing",
]


def load():
    names = [m.name for m in pkgutil.iter_modules(__path__)]
    names.sort(key=lambda n: (ORDER.index(n) if n in ORDER else len(ORDER), n))
    return {n: importlib.import_module(f"{__name__}.{n}") for n in names}
