"""The report on fabricated tables: complete, self-contained, the same bytes again, readable where parts are absent."""

import base64
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import polars as pl
import pytest

from efface.circuits.graph import Graph
from efface.difficulty.cud import Cud
from stages import analyse_difficulty, check_claims, report
from stages.params import Compare, ModelItem
from stages.report_page.inputs import MEASURED
from stages.report_page.sections import best_final
from stages.report_page.style import edit_looks
from stages.tables.agreement import AGREEMENT
from stages.tables.circuits import CIRCUITS
from stages.tables.contrasts import CONTRASTS
from stages.tables.difficulty import DIFFICULTY
from stages.tables.edges import EDGES
from stages.tables.energies import ENERGIES
from stages.tables.examples import EXAMPLES
from stages.tables.faithfulness import FAITHFULNESS
from stages.tables.forget_sets import FORGET_SETS
from stages.tables.metrics import METRICS
from stages.tables.pairwise import PAIRWISE
from stages.tables.predictions import PREDICTIONS
from stages.tables.predictors import PREDICTORS
from stages.tables.quantized_weights import QUANTIZED_WEIGHTS
from stages.tables.results import RESULTS
from stages.tables.table import Table

PICTURES = [
    "forgetting-utility", "difficulty-distribution", "sets", "difficulty-forgetting", "agreement", "recovery",
    "code-changes", "circuit-depth", "signatures", "layer-energies", "loss",
]  # fmt: skip
SETS = ("default", "random_1", "easy", "hard")
SCHEMES = ("rtn_8", "rtn_4", "nf4")
POOL, ANCHORS, SIZE = 100, 20, 15
GRAPH = Graph(layers=4, heads=4)


def params(edits: tuple[str, ...] = ("grom", "qr_erase", "npo"), on_all: tuple[str, ...] = ("grom", "npo")):
    """Parameters of a small grid: all edits on `default`, some on all sets."""
    models = {"target": ModelItem(base="models/target", weights="models/target")}
    for name in SETS:
        for edit in edits if name == "default" else on_all:
            weights = f"models/edit/{edit}-{name}"
            models[f"{edit}-{name}"] = ModelItem(base="models/target", weights=weights, edit=edit, set=name)
        folder = f"models/retained/{name}"
        models[f"retained-{name}"] = ModelItem(base=folder, weights=folder, set=name)
    return SimpleNamespace(
        profile="<b>fabricated</b>",
        seed=0,
        sets=SETS,
        retained=SETS,
        task_matrices=SETS[:2],
        edit={edit: SimpleNamespace(method=edit) for edit in edits},
        score_cud=Cud(),
        models=models,
        compare=Compare(bootstrap=40),
        prepare_data=SimpleNamespace(forget_set_size=SIZE),
        train_target=SimpleNamespace(model=SimpleNamespace(source="scratch")),
    )


def fabricate(given: SimpleNamespace) -> None:
    """Every table of a finished run, with numbers that might come from one."""
    random = np.random.default_rng(0)
    cud = dict(enumerate(random.beta(8, 8, POOL)))
    by_cud = sorted(range(ANCHORS, POOL), key=cud.__getitem__)
    sets = {
        "default": list(range(20, 35)),
        "random_1": list(range(40, 55)),
        "easy": by_cud[:SIZE],
        "hard": by_cud[-SIZE:],
    }
    for name, ids in sets.items():
        write(FORGET_SETS, f"forget_sets/{name}", {"id": sorted(ids), "role": ["forget"] * SIZE})
    write(EXAMPLES, "prepare_data/examples", [example(number) for number in range(POOL + 20)])
    write(METRICS, "compare/metrics", list(metric_rows(given, random)))
    write(PAIRWISE, "compare/pairwise", list(pairwise_rows(list(given.edit))))
    write(DIFFICULTY, "score_cud/difficulty", difficulty_rows(cud))
    write(FAITHFULNESS, "measure_faithfulness/faithfulness", list(faithfulness_rows()))
    write(PREDICTORS, "score_predictors/predictors", predictor_rows(cud, random))
    write(EDGES, "extract_circuits/edges", edge_rows())
    write(CIRCUITS, "extract_circuits/circuits", circuit_rows(cud, random))
    for name, model in given.models.items():
        values = [0.02 + (random.gamma(2, 2) * (1.5 - cud[i]) if model.edit else 0) for i in range(POOL)]
        result = {"model": name, "quantization": "none", "dtype": "float32", "metric": "answer_nll"}
        write(RESULTS, f"evaluate/{name}/results", [result | {"id": i, "value": v} for i, v in enumerate(values)])
        write(
            QUANTIZED_WEIGHTS, f"quantize_attack/{name}/weights", list(weight_rows(name, random)) if model.edit else []
        )
    for name in given.task_matrices:
        write(ENERGIES, f"build_task_matrices/{name}/energies", list(energy_rows(random)))
    for name in ["train_target", *(f"train_retained/{name}" for name in given.retained)]:
        Path("data", name).mkdir(parents=True)
        rows = "".join(f"{n},{n // 5},{5 * 0.93**n + 0.01 * random.random()}\n" for n in range(1, 60))
        Path("data", name, "loss.csv").write_text("step,epoch,loss\n" + rows)


def write(table: Table, name: str, rows: list[dict] | dict) -> None:
    frame = pl.from_arrow(table.schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    table.write(Path("data") / f"{name}.parquet", pl.DataFrame(rows, schema=frame.schema) if rows else frame)


def example(number: int) -> dict:
    return {
        "id": number, "content_hash": f"{number:064x}", "split": "authors", "author": number // 5,
        "position": number % 5, "question": "Who?", "answer": "They.", "paraphrased_answer": None,
        "perturbed_answers": [], "trained": True, "pool": number < POOL, "anchor_candidate": number < ANCHORS,
        "utility": number >= POOL,
    }  # fmt: skip


def pairwise_rows(edits: list[str]) -> Iterator[dict]:
    key = {"forget_set": "default", "quantization": "none", "split": "all", "metric": "final_score"}
    for place, (first, second) in enumerate(combinations(edits, 2)):
        yield key | {
            "first": first,
            "second": second,
            "difference": 0.123 + place,
            "p": 0.004,
            "p_holm": 0.012 * (place + 1),
        }


def metric_rows(given: SimpleNamespace, random: np.random.Generator) -> Iterator[dict]:
    for name, model in given.models.items():
        edit = model.edit or ("target" if name == "target" else "retained")
        for forget_set in [model.set] if model.edit else given.sets:
            for quantization in ("none", *SCHEMES):
                for metric, (split, published) in MEASURED.items():
                    value = fabricated_value(edit, metric, quantization, random)
                    if value is not None:
                        margin = None if metric == "forget_quality_p" else 0.03 + 0.05 * random.random()
                        yield {
                            "profile": given.profile, "model": name, "edit": edit, "forget_set": forget_set, "seed": 0,
                            "dtype": "float32", "quantization": quantization, "split": split, "metric": published,
                            "value": value, "n": 15, "direction": "none",
                            "ci_low": None if margin is None else max(0.0, value - margin),
                            "ci_high": None if margin is None else value + margin,
                        }  # fmt: skip


def fabricated_value(edit: str, metric: str, quantization: str, random: np.random.Generator) -> float | None:
    """Roughly what such a model shows."""
    kept = {"target": 0.98, "retained": 0.04}.get(edit, 0.02 + 0.3 * random.random())
    kept += (
        (1 - kept)
        * {"none": 0.0, "rtn_8": 0.02, "rtn_4": 0.3, "nf4": 0.2}[quantization]
        * (edit not in ("target", "retained"))
    )
    missing = {"recovery": edit in ("target", "retained") or quantization == "none", "ks_statistic": edit == "retained"}
    missing |= {"forget_quality_p": edit == "retained"}
    missing |= {name: quantization != "none" for name in ("model_utility", "final_score", "rougeL")}
    if missing.get(metric):
        return None
    utility = 0.62 if edit in ("target", "retained") else 0.45 + 0.16 * random.random()
    return {
        "forget_quality_p": 10 ** (-8 * random.random()), "ks_statistic": random.random(), "model_utility": utility,
        "final_score": (1 - kept + utility) / 2, "p_retain": 0.95 * random.random(), "recovery": 0.4 * random.random(),
    }.get(metric, kept)  # fmt: skip


def difficulty_rows(cud: dict[int, float]) -> list[dict]:
    return [
        {
            "id": number, "source": "all", "similarity": similarity, "weighting": "binary",
            "s_easy": 1 - value, "s_hard": value, "cud": value, "undefined": number == ANCHORS + 60,
            "chosen": similarity == "cosine",
            "anchor": ("easy" if number % 2 else "hard") if number < 10 else None,
        }
        for similarity in ("cosine", "jaccard")
        for number, value in cud.items()
    ]  # fmt: skip


def predictor_rows(cud: dict[int, float], random: np.random.Generator) -> list[dict]:
    names = ("mrd", "answer_nll", "gradient_norm", "answer_tokens")
    return [
        {"id": number, "predictor": name, "value": float(value + 0.3 * place * random.normal())}
        for place, name in enumerate(names)
        for number, value in cud.items()
    ]


def faithfulness_rows() -> Iterator[dict]:
    """Circuits that carry 90 % of the behaviour, and random ones that carry nothing."""
    for number in range(10):
        for circuit, alone in (("own", -0.81), ("random", 0.0)):
            yield {
                "id": number, "circuit": circuit, "baseline": "patching", "edges": 8, "metric_whole": -0.9,
                "metric_circuit": alone, "metric_complement": -0.09, "metric_empty": 0.0,
            }  # fmt: skip


def edge_rows() -> list[dict]:
    return [
        {
            "edge": edge, "source": GRAPH.source_names[row], "destination": GRAPH.destination_names[column],
            "source_index": row, "destination_index": column, "source_layer": int(GRAPH.source_layers[row]),
            "destination_layer": int(GRAPH.destination_layers[column]),
        }
        for edge, (row, column) in enumerate(
            zip(GRAPH.edge_sources.tolist(), GRAPH.edge_destinations.tolist(), strict=True)
        )
    ]  # fmt: skip


def circuit_rows(cud: dict[int, float], random: np.random.Generator) -> list[dict]:
    """Chains from input to logits through a few nodes; the last pool row has no circuit."""
    rows = []
    for number, value in cud.items():
        edges = {GRAPH.edge_index("input->logits")}
        for _ in range(3):
            layers = sorted(random.choice(4, size=1 + int(3 * value + random.random()), replace=False).tolist())
            chain = ["input", *(f"m{layer}" for layer in layers), "logits"]
            edges |= {GRAPH.edge_index(f"{a}->{b}") for a, b in pairwise(chain)}
        kept, connected = sorted(edges), number < POOL - 1
        rows.append(
            {
                "id": number, "edge_index": kept, "score": [0.1] * len(kept), "in_circuit": [connected] * len(kept),
                "n_selected": len(kept) * connected, "metric_clean": -0.9, "baseline": "patching",
            }
        )  # fmt: skip
    return rows


def weight_rows(model: str, random: np.random.Generator) -> Iterator[dict]:
    for place, scheme in enumerate(SCHEMES):
        for layer in range(4):
            edited = layer > 0
            yield {
                "model": model, "scheme": scheme, "module": f"model.layers.{layer}.mlp.down_proj", "layer": layer,
                "changed_code_share": edited * random.random() / (place + 1), "delta_norm": 2.0 * edited,
                "surviving_delta_norm": edited * (0.3 + 3 * random.random()),
            }  # fmt: skip


def energy_rows(random: np.random.Generator) -> Iterator[dict]:
    for partition in ("forget", "retain"):
        shares = random.dirichlet([3, 4, 5, 8])
        for layer, share in enumerate(shares):
            for module in ("up_proj", "down_proj"):
                yield {
                    "module": f"model.layers.{layer}.mlp.{module}", "layer": layer, "partition": partition,
                    "frobenius_norm": float(share), "energy_share": float(share), "rank": 16,
                }  # fmt: skip


class Sources(HTMLParser):
    """Everything a page would load, and the alternative texts of its pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.alternatives: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.loaded += [str(named[key]) for key in ("src", "srcset", "data") if key in named]
        self.loaded += [str(named["href"])] if tag == "link" else []
        self.alternatives += [str(named.get("alt"))] if tag == "img" else []


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which everything ran."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        given = params()
        fabricate(given)
        for stage in (analyse_difficulty, check_claims, report):
            patch.setattr(stage, "load_params", lambda: given)
            stage.main()
    return folder


@pytest.fixture
def checkout(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A copy of it, with parameters to change."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    given = params()
    monkeypatch.setattr(report, "load_params", lambda: given)
    return given


def page() -> str:
    return Path("data/report/index.html").read_text()


def outputs() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("data/report").rglob("*") if path.is_file()}


def test_page_is_complete_and_needs_nothing_else(checkout):
    sources = Sources()
    sources.feed(page())
    assert len(sources.loaded) == len(sources.alternatives) == len(PICTURES)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources.loaded)
    assert all(len(text) > 60 for text in sources.alternatives)
    assert not re.search(r"<script|@import|url\(", page())
    for source in sources.loaded:
        svg = base64.b64decode(source.partition(",")[2]).decode()
        references = re.findall(r'(?:href|src)="([^"]*)"', svg) + re.findall(r"url\(([^)]*)\)", svg)
        assert all(reference.startswith("#") for reference in references)
    assert [name for name in PICTURES if f'<figure id="{name}">' not in page()] == []
    assert "Not drawn" not in page()


def test_every_model_set_and_quantization_is_in_the_tables(checkout):
    rows = re.findall(r"<tr><th>(\w+)</th><td>", page())
    edited = [model for model in checkout.models.values() if model.edit]
    assert len(rows) == 2 * (len(edited) + 2 * len(SETS)) + len(["all", "held_out"]) * 5 + 4 + 4 + len(
        ["grom", "qr_erase"]
    )
    assert all(page().count(f">forget set {name}<") == 2 for name in SETS)
    assert all(f"<th>{scheme}&nbsp;<span" in page() for scheme in ("none", *SCHEMES))


def test_every_pair_of_methods_is_compared_once(checkout):
    """Three methods: three differences, by either sign, with their corrected p."""
    differences = re.findall(r"[+−](?:0\.123|1\.123|2\.123)", page())
    assert sorted(text[1:] for text in differences) == ["0.123", "1.123", "2.123"]
    assert "p by Holm over all 3 pairs: 3 of them" in page() and "p 0.012" in page() and "p 0.036" in page()


def test_text_from_parameters_is_escaped(checkout):
    assert "<b>fabricated" not in page() and "&lt;b&gt;fabricated" in page()


def test_plot_data_hold_what_the_pictures_show(checkout):
    names = ("forgetting_utility", "difficulty", "recovery")
    points, difficulty, recovery = (pl.read_csv(f"data/report/plots/{name}.csv") for name in names)
    assert points["quantization"].unique().to_list() == ["none"] and points["forgotten"].is_between(0, 1).all()
    assert (points["forgotten_low"] <= points["forgotten"]).all()
    assert (points["forgotten"] <= points["forgotten_high"]).all()
    groups = difficulty["group"].value_counts().sort("group")
    assert groups.rows() == [("easy", SIZE), ("hard", SIZE), ("other", POOL - 2 * SIZE)]
    assert set(recovery["quantization"]) == {"none", *SCHEMES}


def test_same_tables_give_the_same_bytes_whatever_the_user_has_set_for_matplotlib(checkout, monkeypatch):
    before = outputs()
    assert {Path(name).name for name in before} == {
        "index.html", "forgetting_utility.png", "forgetting_utility.csv", "difficulty.csv", "recovery.csv",
    }  # fmt: skip
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30)
    monkeypatch.setitem(matplotlib.rcParams, "axes.grid", False)
    shutil.rmtree("data/report")
    report.main()
    assert outputs() == before


def test_absent_parts_say_why_and_leave_the_rest(checkout):
    """No retained model, no quantization, no generated answers, no task matrices, no circuits, nothing trained here."""
    shutil.rmtree("data/report")
    metrics = METRICS.read("data/compare/metrics.parquet")
    absent = ["rougeL_recall", "model_utility", "final_score", "forget_quality_p", "ks_statistic"]
    metrics = metrics.filter(
        pl.col("quantization") == "none", pl.col("edit") != "retained", ~pl.col("metric").is_in(absent)
    )
    METRICS.write("data/compare/metrics.parquet", metrics)
    write(PAIRWISE, "compare/pairwise", [])
    checkout.models = {name: model for name, model in checkout.models.items() if not name.startswith("retained")}
    for name in checkout.models:
        write(QUANTIZED_WEIGHTS, f"quantize_attack/{name}/weights", [])
    for name in SETS:
        write(ENERGIES, f"build_task_matrices/{name}/energies", [])
    write(CIRCUITS, "extract_circuits/circuits", [])
    write(FAITHFULNESS, "measure_faithfulness/faithfulness", list(faithfulness_rows()))
    for name, table in (("agreement", AGREEMENT), ("contrasts", CONTRASTS), ("predictions", PREDICTIONS)):
        write(table, f"analyse_difficulty/{name}", [])
    write(FAITHFULNESS, "measure_faithfulness/faithfulness", [])
    for path in Path("data").glob("train_*/**/loss.csv"):
        path.write_text("step,epoch,loss\n")
    report.main()
    reasons = re.findall(r"Not drawn: ([^<]*)<", page())
    assert len(reasons) == 7 and all(reason.endswith(".") for reason in reasons)
    drawn = [name for name in PICTURES if f'<figure id="{name}">' in page()]
    assert drawn == ["difficulty-distribution", "sets", "difficulty-forgetting"]
    assert "ROUGE\u2011L" not in page() and not Path("data/report/forgetting_utility.png").exists()


def test_a_grid_of_one_edit_on_one_set_of_a_gguf_model(checkout):
    checkout.models = {name: checkout.models[name] for name in ("target", "grom-default", "retained-default")}
    checkout.sets = checkout.retained = checkout.task_matrices = ("default",)
    checkout.train_target.model.source = "models/small.gguf"
    keep = pl.col("model").is_in(list(checkout.models)) & (pl.col("forget_set") == "default")
    METRICS.write("data/compare/metrics.parquet", METRICS.read("data/compare/metrics.parquet").filter(keep))
    write(PAIRWISE, "compare/pairwise", [])
    report.main()
    assert re.findall(r"Not drawn: ([^<]*)<", page()) == [
        "no edit ran on more than one forget set.",
        "no example of the forget sets easy and hard has a connected circuit.",
    ]
    assert "Beware: training started from models/small.gguf." in page()


@pytest.mark.parametrize(
    ("grom", "said"),
    [
        (0.9, " grom has the best Final score on default, 0.900."),
        (0.7, " npo has the best Final score on default, 0.800; the best GROM edit, grom, has 0.700. "
         "What makes the difference: forgetting 0.700 against 0.500, model utility 0.900 against 0.900."),
    ],
)  # fmt: skip
def test_best_edit_and_what_sets_it_apart_are_said(grom, said):
    rows = [("grom", grom), ("npo", 0.8), ("target", 1.0)]
    outcomes = pl.DataFrame(
        [
            {"forget_set": "default", "quantization": "none", "edit": edit, "final_score": final, "model_utility": 0.9}
            for edit, final in rows
        ]
    )
    assert best_final(SimpleNamespace(outcomes=outcomes, first_set="default", edits=["grom", "npo"])) == said


def test_no_two_edits_look_the_same():
    looks = edit_looks([f"edit_{number}" for number in range(40)])
    assert len(set(looks.values())) == 42


def test_a_missing_table_is_named(checkout):
    Path("data/compare/metrics.parquet").unlink()
    with pytest.raises(ValueError, match=r"data/compare/metrics\.parquet: no such file.*dvc repro"):
        report.main()
