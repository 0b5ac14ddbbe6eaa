"""What a library that is made with lockstep shows of it."""
import pathlib
import re
import subprocess

# What must exist once in a process. Templates of the standard library stay visible, too.
SHOWN = r"detail::(log_state\(|signal_state$|bound_pool\(|JobSlot::of\(|cuda::CaptureLock::mutex\()"


def complaint(library: pathlib.Path) -> str:
    symbols = subprocess.run(["nm", "-DC", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    shown = [line for line in symbols.splitlines() if re.search(rf" \w (|\w[\w ]* for )lockstep::(?!{SHOWN})", line)]
    return "\n".join(["the library shows lockstep's symbols:", *shown[:10]]) if shown else ""
