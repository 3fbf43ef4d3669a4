"""Compiling a C project of 50 files (in a quick run 12) with `make -j2` and gcc, on a file system in memory."""
from harness.inside import timed

UNIT = "ns"
TARGETS = {"compile 50 C files, make -j2": 1.0}
PREPARE = r"""
mkdir /tmp/project && cd /tmp/project
python3 -c '
names = [f"part{i:02}" for i in range(FILES)]
decl = "".join(f"int {n}(int, char *);\n" for n in names)
open("project.h", "w").write("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" + decl)
for i, n in enumerate(names):
    calls = "".join(f"    if (x == {k}) return {names[k]}(x - {k + 1}, s) + {i};\n" for k in range(FILES) if k != i)
    body = "".join(f"static int step{k}(int x) {{ for (int i = 0; i < x; i++) x ^= i * {k + 3}; return x; }}\n" for k in range(20))
    use = "".join(f"    x += step{k}(x & 15);\n" for k in range(20))
    open(n + ".c", "w").write("#include \"project.h\"\n" + body + f"int {n}(int x, char *s) {{\n" + use + calls
                              + "    snprintf(s, 20, \"%d\", x);\n    return (int)strlen(s);\n}\n")
open("main.c", "w").write("#include \"project.h\"\nint main(void) { char s[32]; return part00(3, s) < 0; }\n")
objects = " ".join(n + ".o" for n in names + ["main"])
open("Makefile", "w").write(f"CFLAGS = -O1 -Wall\nproject: {objects}\n\tgcc -o $@ $^\n%.o: %.c project.h\n\tgcc $(CFLAGS) -c -o $@ $<\n"
                            "clean:\n\trm -f *.o project\n")
'
"""  # noqa: E501


def measure(runtime, opt):
    files = 12 if opt.quick else 50
    t = timed(
        runtime,
        "/usr/bin/make",
        "-s",
        "-C",
        "/tmp/project",
        "-j2",
        prepare=PREPARE.replace("FILES", str(files)),
        before="make -s -C /tmp/project clean",
        count=1 if opt.quick else 2,
    )
    return {f"compile {files} C files, make -j2": t}
