"""`python -m flows.lineage MODEL[@alias|/version]` traces a registered model back, step by step, to its base and data.

`--json` and `--html` print the same otherwise; `--verify` hashes everything again; `--example ID` goes the other way.
"""

import argparse
import html
import json
import sys
from dataclasses import asdict
from typing import Any

from mlflow.exceptions import MlflowException

from flows.environment import set_environment
from flows.registered import Registered, find_registered
from stages.lineage import WRITTEN_BY_STAGES, gaps, steps

TAGS = ("content_key", "profile", "model", "method", "forget_set", "forget_set_key", "git.commit", "git.dirty")
TAGS += ("flow_run", "promotion")
STYLE = "body{font:15px sans-serif;max-width:70em;margin:auto}td,th{text-align:left;padding:0 1em 0 0}code{color:#555}"


def lineage_tree(model: Registered) -> dict[str, Any]:
    """All that is known of a version, nested: tags, metrics, gaps, steps from base model to attack, and its parent."""
    return {
        "address": model.address,
        "aliases": list(model.aliases),
        "tags": dict(model.tags),
        "metrics": dict(model.metrics),
        "gaps": gaps(model.lineage),
        "steps": steps(model.lineage),
        "parent": lineage_tree(model.parent) if model.parent else None,
    }


def lineage_text(tree: dict[str, Any]) -> str:
    """The tree for a terminal; code is counted here and listed in `--json` and `--html`."""
    lines = [f"{tree['address']}  {' '.join('@' + alias for alias in tree['aliases'])}".rstrip()]
    lines += [f"  {name:16} {tree['tags'][name]}" for name in TAGS if tree["tags"].get(name)]
    lines += [f"  {name} = {value:.6g}" for name, value in sorted(tree["metrics"].items())]
    for step, stages in tree["steps"].items():
        lines += [f"  {step}"] if stages else []
        for stage, record in stages.items():
            data = {path: md5 for path, md5 in record["deps"].items() if path.startswith(WRITTEN_BY_STAGES)}
            lines.append(f"    {stage}  (code: {len(record['deps']) - len(data)} paths)")
            lines += [f"      reads   {md5:36} {path}" for path, md5 in data.items()]
            lines += [f"      writes  {md5:36} {path}" for path, md5 in record["outs"].items()]
    lines += [f"  GAP: {gap}" for gap in tree["gaps"]] or ["  no gap"]
    if tree["parent"]:
        lines += ["", f"edited from {lineage_text(tree['parent'])}"]
    return "\n".join(lines)


def lineage_html(tree: dict[str, Any]) -> str:
    """The tree as a page without scripts and outside files."""
    title = html.escape(tree["address"])
    head = f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
    return head + _section(tree)


def _section(tree: dict[str, Any]) -> str:
    parts = [f"<h1>{html.escape(tree['address'])}</h1>", _rows({"aliases": ", ".join(tree["aliases"]), **tree["tags"]})]
    parts.append(f"<details><summary>metrics</summary>{_rows(tree['metrics'])}</details>")
    parts += [f"<p><b>Gap:</b> {html.escape(gap)}" for gap in tree["gaps"]] or ["<p>No gap."]
    for step, stages in tree["steps"].items():
        parts += [f"<h2>{html.escape(step)}</h2>"] if stages else []
        for stage, record in stages.items():
            parameters = html.escape(json.dumps(record["params"]))
            parts.append(
                f"<details><summary>{html.escape(stage)}</summary><p><code>{html.escape(record['cmd'])}</code>"
            )
            parts.append(f"<p>parameters <code>{parameters}</code>")
            parts.append(f"<h4>reads</h4>{_rows(record['deps'])}<h4>writes</h4>{_rows(record['outs'])}</details>")
    return "\n".join(parts) + (f"<hr>{_section(tree['parent'])}" if tree["parent"] else "")


def _rows(values: dict[str, Any]) -> str:
    cells = (
        f"<tr><td>{html.escape(str(name))}<td><code>{html.escape(str(value))}</code>" for name, value in values.items()
    )
    return f"<table>{''.join(cells)}</table>"


def _verified(model: Registered) -> int:
    """Prints every finding that is a problem, and a count; 1 where there is one."""
    from flows.verification import verify

    findings = list(verify(model))
    problems = [finding for finding in findings if finding.problem]
    for finding in problems:
        print(f"{finding.path}: {finding.problem}")
    print(f"{model.address}: {len(findings)} files and folders hashed again, {len(problems)} problem(s)")
    return 1 if problems else 0


def _example(example: str, *, as_json: bool) -> int:
    from flows.erasures import described, erasures

    found = list(erasures(example))
    print(json.dumps([asdict(erasure) for erasure in found], indent=2) if as_json else _listed(map(described, found)))
    return 0


def _listed(texts: Any) -> str:
    return "\n\n".join(texts) or "No registered version has forgotten this example."


def _example_id(text: str) -> str:
    if text.isdecimal() or (len(text) >= 8 and set(text) <= set("0123456789abcdef")):
        return text
    raise argparse.ArgumentTypeError(f"{text!r}: expected an example id, or eight or more digits of its content hash")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m flows.lineage", description=main.__doc__)
    parser.add_argument("model", nargs="?", help="NAME, NAME@alias or NAME/version")
    parser.add_argument("--example", type=_example_id, metavar="ID", help="list the versions that forgot this example")
    parser.add_argument("--verify", action="store_true", help="hash again everything that the lineage names")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--html", action="store_true")
    chosen = parser.parse_args(argv)
    if bool(chosen.model) == bool(chosen.example):
        parser.error("name a model, or an example with --example")
    set_environment()
    try:
        if chosen.example:
            return _example(chosen.example, as_json=chosen.json)
        model = find_registered(chosen.model)
        if chosen.verify:
            return _verified(model)
    except (ValueError, MlflowException) as error:
        print(f"lineage: {error}", file=sys.stderr)
        return 2
    tree = lineage_tree(model)
    print(json.dumps(tree, indent=2) if chosen.json else lineage_html(tree) if chosen.html else lineage_text(tree))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
