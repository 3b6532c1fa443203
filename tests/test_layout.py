"""The project's own rules: one name in every place, dependencies that cover imports, rooms that look only upwards."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from stages.params import Params, load_params

ROOT = Path(__file__).resolve().parent.parent
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
ROOMS = [
    "linalg", "models", "tokenization", "generation", "corpora", "training", "activations", "task_matrices", "circuits",
    "evaluation", "editing", "unlearning", "difficulty", "quantization", "relearning", "artifact_repository",
]  # fmt: skip
SECTION_OF = {
    "train_retained": "train_target", "report": None, "analyse_difficulty": None, "check_claims": None,
    "sustained_requests": "sustained", "accept_requests": "requests",
}  # fmt: skip
FORBIDDEN_IN_LIBRARY = {"mlflow", "prefect", "dvc", "yaml", "pyarrow", "polars", "stages", "flows"}
# Parameters reach DVC through `params:`, and the runner only starts a stage: neither changes what a stage computes.
NOT_A_DEPENDENCY = {
    f"stages/{name}.py" for name in ("params", "__main__", "server", "scratch", "process", "external_source")
}


def imported_modules(path: Path) -> set[str]:
    """Dotted names that a file imports anywhere, functions included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def first_party_files(path: Path) -> set[Path]:
    """Files of the project that `path` imports, directly or not."""
    found, queue = set(), [path]
    while queue:
        for name in imported_modules(queue.pop()):
            file = ROOT / (name.replace(".", "/") + ".py")
            if name.split(".")[0] not in ("efface", "stages") or not file.is_file() or file in found:
                continue
            found.add(file)
            if file.relative_to(ROOT).as_posix() not in NOT_A_DEPENDENCY:
                queue.append(file)
    return found


def definition(stage: str) -> dict:
    return DVC[stage].get("do", DVC[stage])


@pytest.mark.parametrize("stage", DVC)
def test_stage_has_one_name_everywhere(stage):
    assert definition(stage)["cmd"].split()[:4] == ["python", "-m", "stages", stage]
    assert (ROOT / "stages" / f"{stage}.py").is_file()
    section = SECTION_OF.get(stage, stage)
    assert section is None or section in Params.model_fields
    outputs = [next(iter(out)) if isinstance(out, dict) else out for out in outputs_of(stage)]
    assert any(out.startswith(f"data/{stage}") for out in outputs)
    tests = "\n".join(path.read_text() for path in (ROOT / "tests" / "stages").glob("test_*.py"))
    assert re.search(rf"\bstages(\.| import .*){stage}\b", tests), f"no test in tests/stages mentions stages.{stage}"


def outputs_of(stage: str) -> list:
    parts = definition(stage)
    return parts.get("outs", []) + parts.get("plots", []) + parts.get("metrics", [])


@pytest.mark.parametrize("stage", DVC)
def test_dependencies_cover_every_import(stage):
    deps = definition(stage)["deps"]
    for file in first_party_files(ROOT / "stages" / f"{stage}.py"):
        name = file.relative_to(ROOT).as_posix()
        covered = any(name == dep or name.startswith(f"{dep}/") for dep in deps)
        assert covered or name in NOT_A_DEPENDENCY, f"dvc.yaml: stage {stage} imports {name}, no dep covers it"


@pytest.mark.parametrize("stage", DVC)
def test_code_dependencies_exist_and_are_imported(stage):
    imported = {file.relative_to(ROOT).as_posix() for file in first_party_files(ROOT / "stages" / f"{stage}.py")}
    for dep in definition(stage)["deps"]:
        if not dep.startswith(("efface", "stages")):
            continue
        assert (ROOT / dep).exists(), f"dvc.yaml: stage {stage} depends on {dep}, which does not exist"
        used = dep == f"stages/{stage}.py" or any(name == dep or name.startswith(f"{dep}/") for name in imported)
        assert used, f"dvc.yaml: stage {stage} depends on {dep} and imports nothing of it"


@pytest.mark.parametrize("path", sorted((ROOT / "efface").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_import_only_rooms_above(path):
    room = path.relative_to(ROOT / "efface").parts[0].removesuffix(".py")
    if room == "__init__":
        return
    for name in imported_modules(path):
        parts = name.split(".")
        if parts[0] == "efface" and len(parts) > 1:
            assert ROOMS.index(parts[1]) <= ROOMS.index(room), f"{room} imports {name}, a room below it"
        if room != "artifact_repository":
            assert parts[0] not in FORBIDDEN_IN_LIBRARY, f"{path}: the library may not import {parts[0]}"


def test_package_init_files_hold_a_docstring_only():
    for path in [*ROOT.glob("efface/**/__init__.py"), *ROOT.glob("stages/**/__init__.py")]:
        body = ast.parse(path.read_text()).body
        assert len(body) == 1 and isinstance(body[0], ast.Expr), f"{path} should hold a docstring only"


@pytest.mark.parametrize(
    "path", [ROOT / "params.yaml", *sorted(ROOT.glob("profiles/*/params.yaml"))], ids=lambda path: path.parent.name
)
def test_parameters_of_every_profile_are_valid(path):
    params = load_params(path)
    outputs = {f"data/forget_sets/{name}.parquet" for name in params.sets}
    written = {out for stage in ("prepare_data", "score_cud") for out in outputs_of(stage) if isinstance(out, str)}
    assert outputs <= written


@pytest.mark.parametrize("where", ["", "prepare_data", "train_target", "edit.grom", "grid.grom-default"])
def test_unknown_parameter_is_refused_by_name(tmp_path, where):
    tree = yaml.safe_load((ROOT / "params.yaml").read_text())
    section = tree
    for key in filter(None, where.split(".")):
        section = section[key]
    section["learnign_rate"] = 1
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(ValueError, match="learnign_rate"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize("key", ["sets", "retained", "task_matrices", "edit", "grid", "models"])
@pytest.mark.parametrize("name", ["a; rm -rf ~", "../up", "$(id)", "-rf", "a b", ""])
def test_a_name_that_is_no_plain_name_is_refused(tmp_path, key, name):
    tree = yaml.safe_load((ROOT / "params.yaml").read_text())
    if isinstance(tree[key], list):
        tree[key].append(name)
    else:
        tree[key][name] = next(iter(tree[key].values()))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(ValueError, match="expected a letter or digit"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize("path", ["/etc", "models/../../etc", "models", "data//x", "models/a b"])
def test_an_output_outside_data_and_models_is_refused(tmp_path, path):
    tree = yaml.safe_load((ROOT / "params.yaml").read_text())
    tree["grid"]["grom-default"]["weights"] = path
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(ValueError, match="inside data/ or models/"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    "path",
    sorted(path for folder in ("efface", "stages", "flows") for path in (ROOT / folder).rglob("*.py")),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_nothing_unpickles_or_runs_text(path):
    forbidden = {"eval", "exec", "os.system", "os.popen", "torch.load", "np.load", "yaml.unsafe_load", "yaml.full_load"}
    assert not {"pickle", "cloudpickle", "dill", "joblib", "shelve"} & imported_modules(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called, options = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
            assert called not in forbidden, f"{path}: {called}"
            assert options.get("shell") != "True" and options.get("trust_remote_code") != "True"
            assert called != "yaml.load" or options.get("Loader") == "LOADER", f"{path}: yaml.load with another loader"


def test_every_known_complaint_has_its_test():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/known_complaints.md").read_text()))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named and not {name for name in named if f"def {name}(" not in sources}
