"""A profile runs committed code in a clone, on the cache of the main checkout, and brings its results back."""

import subprocess
from pathlib import Path

import pytest

from flows.environment import with_this_python
from flows.profile_run import ProfileError, clone_environment, keep_results, main, work_clone
from flows.run_clone import OverrideError, set_parameters

FILES = {
    "dvc.yaml": "stages: {copy: {cmd: 'mkdir -p data/compare && cp params.yaml data/compare/metrics.json', "
    "params: [size], outs: [data/compare/metrics.json]}}",
    "params.yaml": "size: 1\n",
    "code.py": "",
    ".gitignore": ".scratch/\n.state/\n",
    "profiles/big/params.yaml": "size: 9\n",
}


def command(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, check=True, env=with_this_python(), capture_output=True, text=True)
    return done.stdout


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("main")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    command(folder, "git", "init", "-q")
    command(folder, "dvc", "init", "-q")
    command(folder, "git", "add", "-A")
    command(folder, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "first")
    return folder


def test_a_profile_works_in_a_clone_and_keeps_its_results(root: Path) -> None:
    clone = work_clone(root, "big")
    assert clone == root / ".scratch/profiles/big"
    assert (clone / "params.yaml").read_text() == "size: 9\n"
    command(clone, "dvc", "repro")
    kept = [path.relative_to(root).as_posix() for path in keep_results(root, "big")]
    assert kept == ["profiles/big/dvc.lock", "profiles/big/metrics.json"]
    assert (root / "profiles/big/metrics.json").read_text() == "size: 9\n"
    assert any((root / ".dvc/cache/files/md5").rglob("*")) and not (clone / ".dvc/cache").exists()
    assert (root / "params.yaml").read_text() == "size: 1\n"

    assert "didn't change, skipping" in command(work_clone(root, "big"), "dvc", "repro")


def test_uncommitted_code_is_refused_by_name(root: Path) -> None:
    (root / "code.py").write_text("changed")
    (root / "params.yaml").write_text("size: 2\n")
    with pytest.raises(ProfileError, match=r"these files differ from it: code.py; commit them"):
        work_clone(root, "big")
    (root / "code.py").write_text("")
    (root / "params.yaml").write_text("size: 1\n")


def test_unknown_profiles_are_refused_with_the_known_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(root)
    assert main(["../big"]) == 1
    assert "no profile '../big'; profiles/ has: big" in capsys.readouterr().err


def test_stages_in_a_clone_know_the_main_checkout(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert clone_environment(root) == {"EFFACE_ROOT": str(root), "MLFLOW_TRACKING_URI": f"sqlite:///{root}/mlflow.db"}


@pytest.mark.parametrize("value", ["a; rm -rf ~", ["x", "$(id)"], {"k": "`id`"}, {"a|b": 1}, "line\nbreak", "${HOME}"])
def test_an_override_that_a_shell_could_run_is_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "params.yaml").write_text("size: 1\n")
    with pytest.raises(OverrideError, match="DVC puts values into commands"):
        set_parameters(tmp_path, None, {"size": value})
    assert (tmp_path / "params.yaml").read_text() == "size: 1\n"
    set_parameters(tmp_path, None, {"size": ["models/target", 1.0e-5, {"plain": True}]})
    assert "models/target" in (tmp_path / "params.yaml").read_text()
