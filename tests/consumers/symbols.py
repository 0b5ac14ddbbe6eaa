"""Checks which symbols of lockstep a program or a library built with it has."""
import pathlib
import re
import subprocess

# Objects that must be unique in a process. Templates of the standard library also remain visible.
SHOWN = r"detail::(log_state\(|signal_state$|stop_of_process$|bound_pool\(|JobSlot::of\(|cuda::CaptureLock::mutex\(|conten(ded_flag|tion_of_process)\()"


FEATURE = re.compile(r"lockstep::detail::(CheckpointWriter|StepRecorder|RecoveringRuns|ElasticMember|ElasticCore|Participant)::")


def of_feature(symbol: str) -> bool:
    """Whether a line of nm is the code of a feature that a program has only if it includes its header."""
    return bool(FEATURE.search(symbol))


def complaint(library: pathlib.Path) -> str:
    symbols = subprocess.run(["nm", "-DC", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    shown = [line for line in symbols.splitlines() if re.search(rf" \w (|\w[\w ]* for )lockstep::(?!{SHOWN})", line)]
    return "\n".join(["the library shows lockstep's symbols:", *shown[:10]]) if shown else ""
