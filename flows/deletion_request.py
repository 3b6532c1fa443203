"""Deletion requests from a folder: checked, made into one edit of all that stand, measured, attacked, certified.

`python -m flows.deletion_request FOLDER` carries out what is new there. Works in a throw-away clone, as a scheduled run
does; what comes of it are a registered version, the branch `runs/<flow-run-id>`, and `FOLDER/certificates/`.
"""

import argparse
import fcntl
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from flows.certificates import SET, batch_name, batches
from flows.pipeline import (
    AT_ONCE,
    FLOW_RUN,
    REPORT,
    after_stages,
    not_completed,
    outcome,
    publish,
    register,
    reproduce_stages,
)
from flows.profile_run import clone_environment
from flows.request_files import RequestFile, RequestFileError, checked, read_requests, request_files
from flows.run_clone import run_clone, set_parameters
from flows.scheduled import commit
from stages.encoded_rows import EXAMPLES_FILE
from stages.tables.examples import EXAMPLES

# After flows.pipeline, which puts the environment in place that Prefect reads when it is imported.
from prefect import flow  # isort: skip
from prefect.artifacts import create_markdown_artifact  # isort: skip
from prefect.runtime import flow_run  # isort: skip
from prefect.states import Completed, Failed, State  # isort: skip

CHECKED = Path(".scratch/batch.json")
MATRICES = f"data/build_task_matrices/{SET}"
EDIT = "grom_searched"


class RequestsError(ValueError):
    """Requests cannot be carried out as things are; the message says what to change."""


@flow(name="efface-deletion-request", task_runner=AT_ONCE)
def deletion_request(folder: str, repo: str = ".", profile: str | None = None, edit: str = EDIT) -> State:
    """Carries out every request in `folder` that no earlier batch dealt with.

    All requests that stand, earlier ones too, are forgotten by one edit of the target, so that utility is paid for
    once. A request that cannot be carried out is refused by name, and the others proceed. A run that fails or is killed
    leaves the batch undone, and the next one takes it up again, with all that was computed.
    """
    root, inbox, run = Path(repo).resolve(), Path(folder).resolve(), str(flow_run.id)
    environment = {**clone_environment(root), FLOW_RUN: run}
    with _alone(inbox):
        pending, unreadable = pending_files(inbox)
        if not pending and not unreadable:
            return Completed(name="Skipped", message=f"{inbox}: no request is new")
        if not pending:
            return Failed(message="; ".join(unreadable))
        with run_clone(root, run) as clone:
            set_parameters(clone, profile, {})
            states = reproduce_stages(clone, environment, until=["prepare_data"])
            if not_completed(states):
                return outcome(states)
            batch = checked_batch(inbox, pending, clone, edit)
            if batch["edit"]:
                set_parameters(clone, None, parameters(yaml.safe_load((clone / "params.yaml").read_text()), batch))
                states |= _edited(clone, environment, run)
            if not not_completed(states):
                states |= _certified(clone, environment, batch, inbox)
            publish(clone, states, report=clone / REPORT)
    if unreadable and not not_completed(states):
        return Failed(message=f"the other files are dealt with, but {'; '.join(unreadable)}")
    return outcome(states)


def pending_files(inbox: Path) -> tuple[list[RequestFile], list[str]]:
    """The files that no batch has dealt with, and why others of them cannot be read; these stay for the next run.

    Raises: RequestsError where there is no such folder.
    """
    if not inbox.is_dir():
        raise RequestsError(f"{inbox}: no such folder; make it and put a .jsonl or .parquet file of requests there")
    done = {digest for batch in batches(inbox) for digest in batch["files"].values()}
    pending, unreadable = [], []
    for path in request_files(inbox):
        try:
            if (file := read_requests(path)).digest not in done:
                pending.append(file)
        except RequestFileError as error:
            unreadable.append(str(error))
    return pending, unreadable


def checked_batch(inbox: Path, files: Sequence[RequestFile], clone: Path, edit: str) -> dict[str, Any]:
    """The record of a batch before it is carried out: what is accepted, what is refused, what stands afterwards.

    `edit` is None in it where there is nothing to edit: no request is accepted, or none stands any more.
    """
    examples, earlier = EXAMPLES.read(clone / EXAMPLES_FILE), batches(inbox)
    stood = earlier[-1]["standing"] if earlier else []
    accepted, unfit = checked([each for file in files for each in file.requests], examples, stood)
    refused = [*(each for file in files for each in file.malformed), *unfit]
    digests = {file.name: file.digest for file in files}
    withdrawn = {each.content_hash for each in accepted if each.action == "withdraw"}
    added = [each.content_hash for each in accepted if each.action == "delete"]
    standing = sorted([*(key for key in stood if key not in withdrawn), *added])
    ids = dict(examples.select("content_hash", "id").iter_rows())
    gone = [key for key in standing if key not in ids]
    if gone:
        raise RequestsError(
            f"{len(gone)} request(s) that stand name examples that the corpus no longer has, such as {gone[0]}; run "
            "with the profile and the data of the earlier batches"
        )
    return {
        "batch": batch_name(len(earlier) + 1, digests),
        "files": digests,
        "edit": edit if accepted and standing else None,
        "model": earlier[-1]["model"] if earlier and standing else None,
        "supersedes": earlier[-1]["model"] if earlier else None,
        "accepted": [asdict(each) for each in accepted],
        "refused": [asdict(each) for each in refused],
        "standing": standing,
        "forget": sorted(ids[key] for key in standing),
        "withdrawn": sorted(ids[key] for key in withdrawn),
    }


def parameters(params: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
    """What to put in place of a profile's grid: this edit on the set of standing requests, the target beside it.

    Raises: RequestsError where the profile has no such edit.
    """
    name, edits = batch["edit"], params["edit"]
    if name not in edits:
        raise RequestsError(f"edit {name!r}: not among this profile's edits, which are {', '.join(edits)}")
    reads, weights = _reads(edits[name]), f"models/edit/{name}-{SET}"
    item = {"edit": name, "set": SET, "base": "models/target", "weights": weights, "reads": reads}
    new = {
        "sets": [SET],
        "retained": [],
        "task_matrices": [SET] if reads == MATRICES else [],
        "grid": {f"{name}-{SET}": item},
        "models": {f"{name}-{SET}": item, "target": params["models"]["target"]},
        "requests": {SET: {"forget": batch["forget"], "withdrawn": batch["withdrawn"]}},
        "relearned": {},
        "sustained": {},
    }
    return {section: value for section, value in new.items() if section in params}


def _reads(edit: Mapping[str, Any]) -> str:
    """What an edit needs besides the model and the data, as a grid item's `reads`."""
    if edit["method"] in ("qr_erase", "unlearn_svd") or edit.get("localised"):
        return MATRICES
    if edit.get("difficulty_gain") or edit.get("order", "shuffled") != "shuffled":
        return "data/score_cud"
    return "data/extract_activations" if edit["method"] == "grom" else "models/target"


def _edited(clone: Path, environment: dict[str, str], run: str) -> dict[str, State]:
    """Every stage up to the comparison, the commit of their results, and the registration."""
    states = reproduce_stages(clone, environment, until=["compare"])
    if not not_completed(states):
        committed = commit.submit(str(clone), run, return_state=False)
        committed.wait()
        states["commit_results"] = committed.state
    return states if not_completed(states) else states | register(clone, environment)


def _certified(clone: Path, environment: dict[str, str], batch: Mapping[str, Any], inbox: Path) -> dict[str, State]:
    (clone / CHECKED).parent.mkdir(parents=True, exist_ok=True)
    (clone / CHECKED).write_text(json.dumps(batch))
    future = after_stages.submit(str(clone), "certify", environment, (str(CHECKED), str(inbox)), return_state=False)
    future.wait()
    if future.state.is_completed():
        print(future.state.message)
        create_markdown_artifact(key="certificates", markdown=str(future.state.message), description=batch["batch"])
    return {"certify": future.state}


@contextmanager
def _alone(inbox: Path) -> Iterator[None]:
    """Lets one run at a time work on a folder of requests."""
    if not inbox.is_dir():
        yield
        return
    with (inbox / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(argv: list[str]) -> int:
    """Carries out the requests of a folder on the checkout in the working directory; 0 where the batch is done."""
    parser = argparse.ArgumentParser(prog="python -m flows.deletion_request", description=main.__doc__)
    parser.add_argument("folder", help="where .jsonl or .parquet files of requests are, and certificates go")
    parser.add_argument("--profile", help="the profile whose target is edited; the default parameters without")
    parser.add_argument("--edit", default=EDIT, help="one of the profile's edits (default: %(default)s)")
    chosen = parser.parse_args(argv)
    state = deletion_request(chosen.folder, profile=chosen.profile, edit=chosen.edit, return_state=True)
    print(state.message)
    return 0 if state.is_completed() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
