"""What a batch of deletion requests leaves behind: one certificate per request, and a record of what stands.

`certificates/<number>-<hash of the files>/` in the folder of the requests holds `<content hash>.json` for every request
that was carried out, and `batch.json`, written last: as long as it is not there, the batch is not done.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.environment import set_environment
from flows.erasures import UNQUANTIZED, erasure_of
from flows.registered import Registered, find_registered
from stages.register_models import RECEIPTS
from stages.tables.requested import REQUESTED

FOLDER, BATCH = "certificates", "batch.json"
SET = "standing"
LIMITS = (
    "The numbers hold for the question, the decoding and the attacks that were tried. A low probability says that the "
    "answer is no longer produced; it is no proof that nothing of it is left in the weights."
)


def batches(folder: Path) -> list[dict[str, Any]]:
    """The records of the batches that are done, oldest first."""
    return [json.loads(path.read_text()) for path in sorted((folder / FOLDER).glob(f"*/{BATCH}"))]


def batch_name(number: int, files: Mapping[str, str]) -> str:
    """`0001-` and the first digits of a hash of the files' hashes: no name from outside becomes a path."""
    return f"{number:04d}-{hashlib.sha256(''.join(sorted(files.values())).encode()).hexdigest()[:12]}"


def write_batch(folder: Path, batch: Mapping[str, Any], certificates: Mapping[str, Mapping[str, Any]]) -> Path:
    """Writes certificates, by content hash, and then the record that says they are all there; where they are."""
    place = folder / FOLDER / batch["batch"]
    place.mkdir(parents=True, exist_ok=True)
    for content_hash, certificate in certificates.items():
        _write(place / f"{content_hash}.json", certificate)
    _write(place / BATCH, batch)
    return place


def certificate(request: Mapping[str, Any], model: Registered, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of one request that was carried out by this version."""
    found = erasure_of(model, request["example"], request["content_hash"])
    table = REQUESTED.read(model.content(f"data/accept_requests/{SET}/requested.parquet"))
    difficulty = table.filter(id=request["example"]).select("cud", "harder_than").row(0, named=True)
    return {
        "request": request["request"],
        "action": request["action"],
        "content_hash": request["content_hash"],
        "batch": batch["batch"],
        "issued": datetime.now(UTC).isoformat(timespec="seconds"),
        "profile": model.tags.get("profile", ""),
        "difficulty": difficulty,
        "influence_on_the_edit": dict(found.influence),
        "probability_before": found.probability_before,
        "probability_after": found.probability.get(UNQUANTIZED),
        "attacks": {
            scheme: {"probability": found.probability[scheme], "recovery": rate}
            for scheme, rate in found.recovery.items()
        },
        "model": model.address,
        "parent": model.parent.address if model.parent else None,
        "content_key": model.tags["content_key"],
        "base_content_key": model.tags["base_content_key"],
        "lineage_sha256": model.tags["lineage_sha256"],
        "git_commit": model.tags.get("git.commit"),
        "flow_run": model.tags.get("flow_run"),
        "promotion": model.tags.get("promotion"),
        "missing": list(found.missing),
        "limits": LIMITS,
    }


def no_edit_certificate(request: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
    """A withdrawal after which no request stands: the unedited target is the model again."""
    wanted = ("request", "action", "content_hash")
    issued = datetime.now(UTC).isoformat(timespec="seconds")
    return {**{key: request[key] for key in wanted}, "batch": batch["batch"], "issued": issued, "model": None}


def described(batch: Mapping[str, Any], certificates: Mapping[str, Mapping[str, Any]]) -> str:
    """A batch as Markdown: what was carried out with its numbers, and what was refused and why."""
    lines = [f"Batch `{batch['batch']}`: {len(certificates)} carried out, {len(batch['refused'])} refused."]
    lines += [f"Model: {batch['model'] or 'unchanged'}; {len(batch['standing'])} request(s) stand.", ""]
    if certificates:
        heads = ["request", "action", "CUD", "p before", "p after", "most that came back", "promotion"]
        lines += [_row(heads), _row(["---"] * len(heads))]
    for each in certificates.values():
        rates = [attack["recovery"] for attack in each.get("attacks", {}).values() if attack["recovery"] is not None]
        numbers = (
            each.get("difficulty", {}).get("cud"),
            each.get("probability_before"),
            each.get("probability_after"),
            max(rates, default=None),
        )
        shown = ["–" if number is None else f"{number:.3f}" for number in numbers]
        lines.append(_row([each["request"], each["action"], *shown, each.get("promotion") or "–"]))
    lines += [f"- refused {each['request'] or '(no name)'} ({each['file']}, {each['line']}): {each['reason']}"
              for each in batch["refused"]]  # fmt: skip
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    """A row of a table; text from outside cannot leave its cell."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _write(path: Path, content: Mapping[str, Any]) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    unfinished.replace(path)


def main(argv: list[str]) -> int:
    """Certifies, in the checkout where a batch was computed, what its edit did; prints the batch as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m flows.certificates", description=main.__doc__)
    parser.add_argument("batch", type=Path, help="JSON file with the checked batch")
    parser.add_argument("folder", type=Path, help="folder of the requests")
    chosen = parser.parse_args(argv)
    set_environment()
    batch = json.loads(chosen.batch.read_text())
    if batch["edit"]:
        receipt = json.loads(RECEIPTS.read_text())[f"{batch['edit']}-{SET}"]
        model = find_registered(f"{receipt['name']}/{receipt['version']}")
        batch["model"] = model.address
        made = {each["content_hash"]: certificate(each, model, batch) for each in batch["accepted"]}
    else:
        made = {each["content_hash"]: no_edit_certificate(each, batch) for each in batch["accepted"]}
    write_batch(chosen.folder, batch, made)
    print(described(batch, made))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
