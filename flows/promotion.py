"""The promotion gate: which of the models that were just made may carry an alias, and why the others may not.

`python -m flows.promotion` judges what `register_models` registered last by the thresholds of promotion.yaml. It moves
the alias `<alias>-<forget set>` to a version that keeps to all of them, and writes the verdict into its tag
`promotion`. A refused version leaves the alias where it is, or loses it if it had it.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml
from mlflow.exceptions import MlflowException
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flows.environment import set_environment
from flows.registered import NotRegistered, Registered, find_registered
from stages.register_models import RECEIPTS
from stages.registry import registry_client

GATE = Path("promotion.yaml")
TAG, PROMOTED = "promotion", "promoted"


class GateError(ValueError):
    """promotion.yaml cannot be used; the message names file, key and expectation."""


class Gate(BaseModel):
    """The thresholds; a key that is not named here is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alias: str = Field(pattern=r"^[a-z][a-z_-]*$")
    forget_probability_at_most: float = Field(ge=0, le=1)
    forget_extraction_strength_at_most: float = Field(ge=0, le=1)
    model_utility_at_least: float = Field(ge=0, le=1)
    recovery_at_most: float = Field(ge=0)


def load_gate(path: str | Path = GATE) -> Gate:
    """The gate of a file.

    Raises: GateError where it is missing, or a key is unknown, missing or out of range.
    """
    try:
        return Gate.model_validate(yaml.safe_load(Path(path).read_text()))
    except FileNotFoundError as error:
        raise GateError(f"{path}: no such file; run from the root of the checkout") from error
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r:.80})" for e in error.errors()]
        raise GateError(f"{path}: {'; '.join(lines)}") from error


def reasons_against(gate: Gate, metrics: Mapping[str, float]) -> list[str]:
    """Every threshold that a model breaks, and by how much; what was not measured counts as broken.

    `metrics`: `<quantization>.<metric>` → value, as `register_models` records them.
    """
    schemes = list(dict.fromkeys(name.partition(".")[0] for name in metrics if not name.startswith("none.")))
    limits = [
        ("none.forget_probability", "p(forget)", "forget_probability_at_most"),
        ("none.forget_extraction_strength", "extraction strength", "forget_extraction_strength_at_most"),
        ("none.model_utility", "model utility", "model_utility_at_least"),
        *((f"{scheme}.recovery", f"recovery after {scheme}", "recovery_at_most") for scheme in schemes),
    ]
    found = [] if schemes else ["recovery is unknown: no quantization was tried (recovery_at_most)"]
    for metric, words, threshold in limits:
        limit, value = getattr(gate, threshold), metrics.get(metric)
        sign = -1 if threshold.endswith("_at_least") else 1
        if value is None:
            found.append(f"{words} is unknown: not measured, or undefined because little was erased ({threshold})")
        elif sign * (value - limit) > 0:
            side = "above" if sign > 0 else "below"
            found.append(f"{words} {value:.4g} is {abs(value - limit):.4g} {side} {limit:g} ({threshold})")
    return found


def promote(gate: Gate) -> dict[str, str]:
    """Judges every edit of the last registration and moves aliases; model → verdict.

    Raises: NotRegistered where nothing has been registered.
    """
    if not RECEIPTS.is_file():
        raise NotRegistered(f"{RECEIPTS}: no such file; run `python -m stages register_models` first")
    receipts = json.loads(RECEIPTS.read_text())
    versions = {model: find_registered(f"{entry['name']}/{entry['version']}") for model, entry in receipts.items()}
    return {model: _judge(gate, version) for model, version in versions.items() if version.tags.get("edit")}


def _judge(gate: Gate, model: Registered) -> str:
    against = reasons_against(gate, model.metrics)
    verdict = f"refused: {'; '.join(against)}" if against else PROMOTED
    client, alias, version = registry_client(), f"{gate.alias}-{model.tags['forget_set']}", str(model.version)
    if not against and alias not in model.aliases:
        client.set_registered_model_alias(model.name, alias, version)
    if against and alias in model.aliases:
        client.delete_registered_model_alias(model.name, alias)
    if model.tags.get(TAG) != verdict:
        client.set_model_version_tag(model.name, version, TAG, verdict)
    return f"{model.address} @{alias}: {verdict}"


def main() -> int:
    """Prints one verdict a line; refusals are no failure."""
    set_environment()
    try:
        verdicts = promote(load_gate())
    except (ValueError, MlflowException) as error:
        print(f"promotion: {error}", file=sys.stderr)
        return 1
    print("\n".join(verdicts.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
