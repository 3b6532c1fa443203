"""`python -m flows.profile_run NAME` runs a profile: the same dvc.yaml with other parameters, beside the main checkout.

The work happens in a clone of the committed code under `.scratch/profiles/NAME`, on the DVC cache of the main checkout;
what is worth keeping comes back to `profiles/NAME/`. A run that was interrupted continues where it stopped.

Stages in the clone find the main checkout in `EFFACE_ROOT`: relative paths to data and models in params.yaml count
from there (from the working directory where the variable is not set; see stages/external_source.py).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from flows.environment import set_environment, with_this_python

ROOT = "EFFACE_ROOT"
PUT = ("params.yaml", "dvc.lock")
KEPT = {
    "dvc.lock": "dvc.lock",
    "data/compare/metrics.json": "metrics.json",
    "data/compare/metrics.parquet": "metrics.parquet",
    "data/check_claims/claims.md": "claims.md",
    "data/report/index.html": "report.html",
}
NO_INPUT = ("params.yaml", "dvc.lock", "profiles/", "data/", "docs/")


class ProfileError(ValueError):
    """A profile cannot be run as things are; the message says what to change."""


def work_clone(root: str | Path, name: str) -> Path:
    """A clone of the commit that `root` is at, with the profile's parameters and lock, on the cache of `root`.

    The clone is kept from run to run, so that outputs and unfinished work are still there.

    Raises: ProfileError where the profile does not exist or the code differs from the commit.
    """
    root = Path(root).resolve()
    profile_folder(root, name)
    _check_committed(root)
    clone = clone_folder(root, name)
    if not (clone / ".git").is_dir():
        clone.parent.mkdir(parents=True, exist_ok=True)
        command_output(root, "git", "clone", "--quiet", str(root), str(clone))
    command_output(clone, "git", "fetch", "--quiet", "origin", "HEAD")
    command_output(clone, "git", "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD")
    share_cache(root, clone)
    put_profile(root, name, clone)
    return clone


def share_cache(root: Path, clone: Path) -> None:
    """Lets a clone keep its outputs in the DVC cache of `root`, as links."""
    command_output(clone, "dvc", "cache", "dir", "--local", command_output(root, "dvc", "cache", "dir").strip())
    command_output(clone, "dvc", "config", "--local", "cache.type", "hardlink,symlink")


def put_profile(root: Path, name: str, clone: Path) -> None:
    """Gives a clone the parameters and the lock of a profile of `root`.

    Raises: ProfileError where there is no such profile.
    """
    folder = profile_folder(root, name)
    for file in PUT:
        (clone / file).unlink(missing_ok=True)
        if (folder / file).is_file():
            shutil.copyfile(folder / file, clone / file)


def keep_results(root: str | Path, name: str) -> list[Path]:
    """Copies lock, metrics and report of a finished run into the profile's folder, and returns what it wrote."""
    clone, folder = clone_folder(root, name), profile_folder(root, name)
    kept = []
    for source, target in KEPT.items():
        if (clone / source).is_file():
            shutil.copyfile(clone / source, folder / target)
            kept.append(folder / target)
    return kept


def clone_environment(root: str | Path) -> dict[str, str]:
    """What a stage in a work clone has to know about the main checkout."""
    root = Path(root).resolve()
    registry = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root / 'mlflow.db'}"
    return {ROOT: str(root), "MLFLOW_TRACKING_URI": registry}


def clone_folder(root: str | Path, name: str) -> Path:
    return Path(root) / ".scratch" / "profiles" / name


def profile_folder(root: str | Path, name: str) -> Path:
    """Where a profile keeps its parameters and results.

    Raises: ProfileError naming the profiles there are where this is none.
    """
    profiles = {path.parent.name: path.parent for path in sorted(Path(root).glob("profiles/*/params.yaml"))}
    if name not in profiles:
        raise ProfileError(f"no profile {name!r}; profiles/ has: {', '.join(profiles) or 'none'}")
    return profiles[name]


def _check_committed(root: Path) -> None:
    """Refuses to run code that no commit records.

    Raises: ProfileError listing the tracked files that differ from HEAD, apart from those a profile replaces or writes.
    """
    status = command_output(root, "git", "status", "--porcelain", "--untracked-files=no")
    changed = [line[3:] for line in status.splitlines() if not line[3:].startswith(NO_INPUT)]
    if changed:
        raise ProfileError(
            "a profile runs the committed code, and these files differ from it: "
            f"{', '.join(changed)}; commit them or put them back, then run again"
        )


def command_output(folder: Path, *command: str) -> str:
    """What a command prints in a folder.

    Raises: ProfileError with the end of its message where it fails.
    """
    done = subprocess.run(command, cwd=folder, env=with_this_python(), capture_output=True, text=True)
    if done.returncode:
        raise ProfileError(f"{' '.join(command)} in {folder} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _run(clone: Path, *command: str) -> int:
    """Runs a Python module in the clone, on this process's streams."""
    environment = {**with_this_python(), **clone_environment(Path.cwd())}
    return subprocess.run([sys.executable, "-m", *command], cwd=clone, env=environment).returncode


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m flows.profile_run NAME", file=sys.stderr)
        return 2
    name, root = argv[0], Path.cwd()
    set_environment(root)
    try:
        clone = work_clone(root, name)
        code = _run(clone, "stages.server", "--", "python", "-m", "stages.dvc", "repro")
        if code:
            print(f"profile {name}: stopped; finished work is kept, run it again to continue", file=sys.stderr)
            return code
        print(f"kept: {', '.join(str(path.relative_to(root)) for path in keep_results(root, name))}")
    except ProfileError as error:
        print(f"profile {name}: {error}", file=sys.stderr)
        return 1
    registered = _run(clone, "stages", "register_models")
    return _run(clone, "stages", "results_table") or registered


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
