"""The stage server: imports the heavy libraries once, and forks one process per stage.

`python -m stages.server -- dvc repro` runs a command beside a server; `python -m stages` finds the server's socket in
the environment, hands over its arguments, working directory, environment and standard streams, and waits.
Importing torch and transformers costs seconds, the default pipeline has some eighty stages, and a fork is free.

The server itself computes nothing (a thread pool that was used does not survive a fork; polars starts threads when it
is imported, so it is not), runs no code of this project (a stage runs the code of its own working directory) and dies
with the command.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from stages.process import CONCURRENT, die_with_parent, set_instructions, set_threads

ADDRESS = "EFFACE_STAGE_SERVER"
PRELOADED = (
    "torch",
    "transformers.modeling_utils",
    "transformers.generation.utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "safetensors.torch",
    "accelerate",
    "peft",
    "scipy.stats",
    "rouge_score.rouge_scorer",
    "bitsandbytes",
    "jaxtyping",
    "pydantic",
    "tqdm",
)
READ_AT_IMPORT = (
    "HF_",
    "TRANSFORMERS_",
    "TORCH",
    "PYTORCH_",
    "BNB_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "ATEN_",
    "PYTHON",
    "LD_",
)
STARTER = 0
LENGTH = struct.Struct("!I")
STATUS = struct.Struct("!i")
DECLINED = -(2**31)


class Declined(Exception):
    """The stage needs a process of its own: a variable that libraries read at import differs from the server's."""


def run_through(address: str, argv: list[str]) -> int:
    """Runs a stage in the server at `address`, on this process's streams, and returns its exit code.

    A stage that died of a signal ends this process by the same signal; when this process dies, the stage is killed.

    Raises: Declined where the stage has to run in a process of its own; ConnectionError where the server is gone.
    """
    body = json.dumps({"argv": argv, "cwd": os.getcwd(), "env": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(address)
            socket.send_fds(connection, [LENGTH.pack(len(body))], [0, 1, 2])
            connection.sendall(body)
            (code,) = STATUS.unpack(_receive(connection, STATUS.size))
        except OSError as error:
            raise ConnectionError(
                f"the stage server at {address} is gone ({error}); run the command again, or unset {ADDRESS} to run "
                "each stage in a process of its own"
            ) from error
    if code == DECLINED:
        raise Declined
    if code < 0:
        with suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


@contextmanager
def stage_server(folder: str | Path = ".") -> Iterator[dict[str, str]]:
    """A server for the checkout at `folder`; yields the environment variable that `python -m stages` looks for."""
    with tempfile.TemporaryDirectory(prefix="efface-") as private:
        address = str(Path(private) / "socket")
        environment = {name: value for name, value in os.environ.items() if name != ADDRESS}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(address)
            listener.listen(128)
            command = [sys.executable, "-m", "stages.server", "--listen", str(listener.fileno())]
            server = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.PIPE, pass_fds=[listener.fileno()]
            )
        try:
            yield {ADDRESS: address}
        finally:
            server.terminate()
            server.communicate()


def launch(command: list[str]) -> int:
    """Runs a command beside a server and returns its exit code; `python` in it is this very interpreter."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with stage_server() as address:
        process = subprocess.Popen(command, env={**os.environ, "PATH": path, **address})
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        code = process.wait()
    return code if code >= 0 else 128 - code


def serve(listener: socket.socket) -> None:
    """Forks a process per connection until SIGTERM, or until standard input, held open by the starter, is closed.

    The libraries are imported when the first stage comes: a `dvc repro` with nothing to do costs nothing.
    """
    environment = dict(os.environ)
    if STARTER in select.select([STARTER, listener], [], [])[0]:
        return
    _preload()
    exits = _notices_of_exits()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    clients: dict[int, socket.socket] = {}
    try:
        while True:
            ready = select.select([STARTER, listener, exits, *clients.values()], [], [])[0]
            if STARTER in ready:
                return
            if exits in ready:
                exits.recv(4096)
            _report_exits(clients)
            _kill([pid for pid, client in clients.items() if client in ready], clients)
            if listener in ready:
                _accept(listener, exits, clients, environment)
    finally:
        _kill(list(clients), clients)


def _accept(
    listener: socket.socket, exits: socket.socket, clients: dict[int, socket.socket], environment: Mapping[str, str]
) -> None:
    """Reads one request and forks its stage; in the fork this call does not return."""
    client = listener.accept()[0]
    streams: list[int] = []
    try:
        header, streams, _, _ = socket.recv_fds(client, LENGTH.size, 3)
        request = json.loads(_receive(client, LENGTH.unpack(header)[0]))
    except (OSError, struct.error):
        request = None
    if request is None or _imports_differ(request["env"], environment):
        with client, suppress(OSError):
            client.sendall(STATUS.pack(DECLINED))
    else:
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            for inherited in (listener, exits, client, *clients.values()):
                inherited.close()
            clients.clear()
            _leave(_run_stage(request, streams, server))
        clients[pid] = client
    for stream in streams:
        os.close(stream)


def _run_stage(request: dict, streams: list[int], server: int) -> int:
    """The life of a fork: becomes what `python -m stages` would have been, and runs the stage."""
    die_with_parent(server)
    signal.set_wakeup_fd(-1)
    for number, handler in (
        (signal.SIGCHLD, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
    ):
        signal.signal(number, handler)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = request["cwd"]
    sys.argv = [str(Path("stages", "__main__.py").resolve()), *request["argv"]]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("stages", "efface")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    try:
        return importlib.import_module("stages.__main__").run_here(request["argv"])
    except KeyboardInterrupt:
        return 130
    except Exception:
        traceback.print_exc()
        return 1


def _leave(code: int) -> NoReturn:
    """Ends a fork as multiprocessing does: taking the libraries down object by object would cost most of a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _preload() -> None:
    """Imports what stages need, without starting a thread pool or touching a GPU; what is not installed is left out."""
    set_threads()
    set_instructions()
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    for module in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()


def _notices_of_exits() -> socket.socket:
    """A socket that becomes readable when a fork has ended."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def _report_exits(clients: dict[int, socket.socket]) -> None:
    """Sends every fork that has ended its exit code (minus the signal, if one ended it) to whoever waits for it."""
    for pid in list(clients):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            with clients.pop(pid) as client, suppress(OSError):
                client.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))


def _kill(pids: list[int], clients: dict[int, socket.socket]) -> None:
    for pid in pids:
        client = clients.pop(pid, None)
        if client is not None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            client.close()


def _imports_differ(wanted: Mapping[str, str], ours: Mapping[str, str]) -> bool:
    """Whether a library imported under `ours` might behave otherwise under `wanted`."""
    return any(
        wanted.get(name) != ours.get(name)
        for name in {*wanted, *ours}
        if name.startswith(READ_AT_IMPORT) or name == CONCURRENT
    )


def _receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes.

    Raises: ConnectionError where the other side is gone before.
    """
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("closed by the other side")
        data += part
    return data


def run(argv: list[str]) -> int:
    if argv[:1] == ["--listen"] and len(argv) == 2:
        serve(socket.socket(fileno=int(argv[1])))
        return 0
    if argv[:1] == ["--"] and len(argv) > 1:
        return launch(argv[1:])
    print("usage: python -m stages.server -- COMMAND [ARGUMENT…]", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
