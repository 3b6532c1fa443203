"""A stage is the same process whether it runs by itself or as a fork of the stage server."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.server import stage_server

ROOT = Path(__file__).resolve().parents[2]
TOY = """
import os, sys, time
from pathlib import Path

def main(item=None):
    if item == "value":
        raise ValueError("beta=-1: expected a positive number; correct params.yaml")
    if item == "defect":
        {}["missing"]
    if item == "disk":
        raise RuntimeError("Error while serializing: No space left on device (os error 28)")
    if item == "killed":
        os.kill(os.getpid(), 9)
    if item == "sleep":
        Path("pid").write_text(str(os.getpid()))
        time.sleep(60)
    import numpy
    from scipy.linalg import qr
    matrix = numpy.random.default_rng(0).normal(size=(300, 200))
    pivots = qr(matrix, mode="r", pivoting=True)[1]
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MARK")
    print(item, pivots[:5], [os.environ.get(name) for name in names], os.getcwd(), sys.argv[1:], sys.stdin.read())
    print("on stderr", file=sys.stderr)
"""
DVC_YAML = "stages: {toy: {foreach: '${items}', do: {cmd: 'true'}}, alone: {cmd: 'true'}}"
PARAMS = "items: [value, defect, disk, killed, sleep, good]"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "stages").mkdir()
    for name in ("__init__", "__main__", "process", "server"):
        shutil.copy(ROOT / "stages" / f"{name}.py", folder / "stages")
    (folder / "stages" / "toy.py").write_text(TOY)
    (folder / "stages" / "alone.py").write_text("def main(item=None): print('alone')\n")
    (folder / "dvc.yaml").write_text(DVC_YAML)
    (folder / "params.yaml").write_text(PARAMS)
    return folder


@pytest.fixture(scope="module")
def served(checkout: Path) -> Iterator[dict[str, str]]:
    """The environment in which stages run through a server that has imported little, so that it starts at once."""
    server = checkout / "stages" / "server.py"
    text = server.read_text()
    server.write_text(re.sub(r"^PRELOADED = \(.*?^\)", 'PRELOADED = ("scipy.stats",)', text, flags=re.S | re.M))
    with stage_server(checkout) as address:
        yield address


def stage(checkout: Path, *argv: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "stages", *argv],
        cwd=checkout,
        env={**os.environ, "MARK": "7", **environment},
        input="typed",
        capture_output=True,
        text=True,
    )


def outcome(done: subprocess.CompletedProcess) -> tuple[int, str, str]:
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("argv", [("toy", "good"), ("alone",), ("toy", "value"), ("toy", "disk"), ("toy", "killed")])
def test_same_output_and_exit_code_either_way(checkout: Path, served: dict[str, str], argv: tuple[str, ...]) -> None:
    assert outcome(stage(checkout, *argv, **served)) == outcome(stage(checkout, *argv))


def test_only_its_user_can_reach_the_server(served: dict[str, str]) -> None:
    [address] = served.values()
    assert Path(address).is_socket() and Path(address).parent.stat().st_mode & 0o077 == 0


def test_messages_and_exit_codes(checkout: Path, served: dict[str, str]) -> None:
    good = stage(checkout, "toy", "good", **served)
    assert (good.returncode, good.stderr) == (0, "on stderr\n")
    assert f"['1', 'PASSIVE', '7'] {checkout} ['toy', 'good'] typed" in good.stdout
    assert outcome(stage(checkout, "toy", "value", **served)) == (
        1,
        "",
        "stage toy value: beta=-1: expected a positive number; correct params.yaml\n",
    )
    assert "free some space and run `dvc repro` again" in stage(checkout, "toy", "disk", **served).stderr
    assert stage(checkout, "toy", "killed", **served).returncode == -signal.SIGKILL
    for environment in (served, {}):
        defect = stage(checkout, "toy", "defect", **environment)
        assert defect.returncode == 1 and "Traceback" in defect.stderr and "KeyError: 'missing'" in defect.stderr
    wanted = stage(checkout, "toy", "value", EFFACE_TRACEBACK="1", **served)
    assert wanted.returncode == 1 and "Traceback" in wanted.stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "usage: python -m stages STAGE [ITEM]; known stages: alone, toy"),
        (("edti",), "no stage 'edti'; known stages: alone, toy"),
        (("../toy",), "no stage '../toy'; known stages: alone, toy"),
        (("toy",), "needs an item; known items: value, defect, disk, killed, sleep, good"),
        (("toy", "bad"), "no item 'bad'; known items: value, defect, disk, killed, sleep, good"),
        (("alone", "good"), "alone takes no item, got 'good'"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(checkout: Path, argv: tuple[str, ...], message: str) -> None:
    code, out, err = outcome(stage(checkout, *argv))
    assert (code, out) == (1, "")
    assert err == f"{' '.join(['stage', *argv])}: {message}\n"


def test_a_variable_read_at_import_sends_the_stage_to_a_process_of_its_own(
    checkout: Path, served: dict[str, str]
) -> None:
    done = stage(checkout, "toy", "good", OMP_NUM_THREADS="2", **served)
    assert done.returncode == 0 and "['2', 'PASSIVE', '7']" in done.stdout


def test_a_killed_client_takes_its_stage_along(checkout: Path, served: dict[str, str]) -> None:
    (checkout / "pid").unlink(missing_ok=True)
    client = subprocess.Popen(
        [sys.executable, "-m", "stages", "toy", "sleep"], cwd=checkout, env={**os.environ, **served}
    )
    fork = int(_wait_for(lambda: (checkout / "pid").is_file() and (checkout / "pid").read_text()))
    assert fork != client.pid and _is_alive(fork)
    client.kill()
    client.wait()
    assert _wait_for(lambda: not _is_alive(fork))
    assert stage(checkout, "alone", **served).stdout == "alone\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a process that its parent is gone")
@pytest.mark.parametrize("shell", ["exec {python} -m stages toy sleep", "{python} -m stages toy sleep; true"])
def test_a_stage_dies_with_dvc_whether_or_not_a_shell_stays_between(checkout: Path, shell: str) -> None:
    (checkout / "pid").unlink(missing_ok=True)
    script = f"import subprocess; subprocess.run(['/bin/sh', '-c', {shell.format(python=sys.executable)!r}])"
    dvc = subprocess.Popen([sys.executable, "-c", script], cwd=checkout, env={**os.environ, "DVC_STAGE": "toy"})
    running = int(_wait_for(lambda: (checkout / "pid").is_file() and (checkout / "pid").read_text()))
    dvc.kill()
    dvc.wait()
    assert _wait_for(lambda: not _is_alive(running))


def test_forks_run_the_code_of_their_own_folder(checkout: Path, served: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(checkout / "stages", tmp_path / "stages")
    (tmp_path / "stages" / "alone.py").write_text("def main(item=None): print('another checkout')\n")
    assert stage(tmp_path, "alone", **served).stdout == "another checkout\n"
    assert stage(checkout, "alone", **served).stdout == "alone\n"


def test_a_server_that_is_gone_is_an_error_not_a_wait(checkout: Path, tmp_path: Path) -> None:
    code, _, err = outcome(stage(checkout, "alone", EFFACE_STAGE_SERVER=str(tmp_path / "socket")))
    assert code == 1 and "the stage server at" in err and "unset EFFACE_STAGE_SERVER" in err


def test_launch_forwards_the_exit_code_and_leaves_nothing_behind(checkout: Path) -> None:
    script = "python -m stages alone && echo $EFFACE_STAGE_SERVER && exit 3"
    done = subprocess.run(
        [sys.executable, "-m", "stages.server", "--", "sh", "-c", script], cwd=checkout, capture_output=True, text=True
    )
    name, address = done.stdout.split()
    assert (done.returncode, name) == (3, "alone")
    assert not Path(address).parent.exists()


def _wait_for(condition, seconds: float = 20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("waited too long")


def _is_alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended and waits to be collected does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
