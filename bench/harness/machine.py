"""What was measured on, and with."""
import os
import platform
import shutil
import subprocess


def built_from(tool: str) -> str:
    """The version of the Go module that has the program."""
    try:
        said = subprocess.run(["go", "version", "-m", shutil.which(tool)], capture_output=True, text=True).stdout
    except OSError:
        return "(version unknown)"
    return next(
        (
            line.split()[2]
            for line in said.splitlines()
            if line.split()[:1] in (["mod"], ["dep"]) and "gvisor.dev/gvisor" in line
        ),
        "(version unknown)",
    )


def machine() -> str:
    """Its processors, memory and kernel, and the versions of what it is compared with."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal:")) >> 20
    tools = []
    for tool in ("runc", "runsc", "bwrap"):
        if shutil.which(tool):
            said = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
            tools.append(said.replace(" version", "") if "MISSING" not in said else f"{tool} {built_from(tool)}")
    return f"{os.cpu_count()} × {cpu}, {memory} GiB; Linux {platform.release()}; {', '.join(tools)}"
