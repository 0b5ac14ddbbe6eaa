"""How much memory a compiler takes for a program: each unit that includes the headers pays for them, and their cost grows
unseen. Peak memory is checked, since it does not depend on the load of the machine. The compiler collects its garbage often, so
that the figure depends on what it needs, not on when its heap last grew: by default it takes about 30 % more."""
import os
import subprocess
import sys

VERSION = "12."  # of g++; others need more or less
COLLECT = ["--param", "ggc-min-expand=20", "--param", "ggc-min-heapsize=4096"]


def compile_within(megabytes: float, command: list[str]) -> None:
    """Runs a compiler. Anything that it reports is an error, and so is more than 5 % above `megabytes`, of g++ 12."""
    version = subprocess.run([command[0], "-dumpfullversion"], stdout=subprocess.PIPE, text=True).stdout
    is_measured = version.startswith(VERSION)
    if is_measured:
        command = [command[0], *COLLECT, *command[1:]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    reported = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)  # also of the compilers that the driver starts
    if status or reported:
        sys.exit(f"exit status {status}: {' '.join(command)}\n{reported}")
    found = usage.ru_maxrss * 1024 / 1e6
    print(f"{found:.0f} MB")
    if is_measured and found > 1.05 * megabytes:
        sys.exit(f"the compiler takes {found:.0f} MB, more than 5 % above {megabytes}; what do the headers instantiate now?")
