"""How the process of a stage behaves: its threads and instructions, and that it never outlives its parent."""

import ctypes
import os
import select
import signal
import sys
import threading
from pathlib import Path

CONCURRENT = "EFFACE_CONCURRENT_STAGES"
PR_SET_PDEATHSIG = 1
SAME_INSTRUCTIONS = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def set_threads() -> int:
    """Gives this process its share of the cores, and returns it: cores / concurrent stages, or OMP_NUM_THREADS.

    Waiting threads sleep: two busy pools on the same cores were seen to run forty times slower.

    Raises: ValueError where a variable that counts is not a positive whole number.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = max(1, cores // (_count(CONCURRENT) or 1))
    threads = _count("OMP_NUM_THREADS") or share
    for pool in POOLS:
        os.environ.setdefault(pool, str(threads))
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return threads


def set_instructions() -> None:
    """Lets the libraries use AVX2 and no more where the processor has it, unless the environment says otherwise.

    Sums are added up in the order of the vectors' width: with the widest that each processor has, two kinds of machine
    train measurably different models from one seed. It was not seen to cost time. Call this before torch is imported.
    """
    information = Path("/proc/cpuinfo")
    if information.is_file() and " avx2 " in information.read_text():
        for variable, value in SAME_INSTRUCTIONS.items():
            os.environ.setdefault(variable, value)


def die_with_parent(parent: int) -> None:
    """Asks the kernel (Linux; elsewhere nothing happens) to kill this process as soon as process `parent` is gone."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def die_with_dvc() -> None:
    """Makes this process, a stage that DVC has started, die with DVC, which may have put a shell in between."""
    parent = os.getppid()
    die_with_parent(parent)
    shell = Path(f"/proc/{parent}/cmdline")
    if shell.exists() and b"-c" in shell.read_bytes().split(b"\0")[1:4]:
        dvc = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        threading.Thread(target=_die_after, args=(os.pidfd_open(dvc),), daemon=True).start()


def _die_after(process: int) -> None:
    """Waits for the end of the process behind a pidfd, then kills this one."""
    select.select([process], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


def _count(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdigit() or int(text) == 0:
        raise ValueError(f"{variable}={text!r}: expected a positive whole number; correct or unset it")
    return int(text)
