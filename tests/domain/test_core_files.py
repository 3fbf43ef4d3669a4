"""Core files of a domain go where its own `core_pattern` says."""

CRASH = "ulimit -c unlimited; sh -c 'kill -ABRT $$' 2>/dev/null"


def test_names_follow_the_pattern(domain):
    out = domain.run("sh", "-c", f"""
        cat /proc/sys/kernel/core_pattern
        mkdir /tmp/cores && cd /tmp
        echo '/tmp/cores/%e.%s.%u.%%.%h' > /proc/sys/kernel/core_pattern; {CRASH}
        ls cores
        echo plain > /proc/sys/kernel/core_pattern; echo 1 > /proc/sys/kernel/core_uses_pid; {CRASH}
        ls plain.*[0-9] | wc -l
        echo > /proc/sys/kernel/core_pattern; cd cores; {CRASH}
        ls | wc -l""", opts=("--hostname", "box")).ok()
    assert out.split() == ["core", "sh.6.0.%.box", "1", "1"]


def test_a_pipe_is_refused_in_words(domain):
    r = domain.run("sh", "-c", "echo '|/bin/cat' > /proc/sys/kernel/core_pattern; cat /proc/sys/kernel/core_pattern")
    assert r.out.strip().endswith("core"), r.out
    assert "error" in r.err and "cannot be piped" in r.err + r.out


def test_no_core_without_being_asked(domain):
    assert domain.run("sh", "-c", "cd /tmp; sh -c 'kill -ABRT $$' 2>/dev/null; ls").ok() == ""
