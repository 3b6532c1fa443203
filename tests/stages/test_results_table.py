import polars as pl
import pytest

from stages import results_table
from stages.tables.metrics import METRICS


def rows(model: str, edit: str, forget_set: str, quantization: str, numbers: dict) -> list[dict]:
    places = results_table.HEADLINE | {"other": ("holdout", "probability")}
    labels = {"profile": "micro", "model": model, "edit": edit, "forget_set": forget_set, "quantization": quantization}
    filling = {"seed": 0, "dtype": "float32", "n": 3, "ci_low": None, "ci_high": None, "direction": "none"}
    return [
        labels | filling | {"split": places[name][0], "metric": places[name][1], "value": value}
        for name, value in numbers.items()
    ]


@pytest.fixture
def metrics() -> pl.DataFrame:
    numbers = {"forget_probability": 0.98765432, "other": 0.5}
    edited = {"forget_probability": 0.1, "forget_quality_p": 1.5e-7, "recovery": None}
    found = [
        *rows("target", "target", "default", "none", numbers),
        *rows("target", "target", "hard", "none", numbers | {"forget_probability": 0.9}),
        *rows("retained-default", "retained", "default", "none", {"forget_probability": 0.01}),
        *rows("retained-default", "retained", "hard", "none", {"forget_probability": 0.95}),
        *rows("grom-default", "grom", "default", "none", edited),
        *rows("grom-default", "grom", "default", "nf4", {"forget_probability": 0.2, "recovery": 0.125}),
    ]
    return pl.DataFrame(found, infer_schema_length=None)


def test_table_by_hand(metrics):
    """A retained model on its own set only; every set together; undefined values as a dash."""
    assert results_table.results_table(metrics).splitlines() == [
        "forget set  method    quantization  p(forget)  ROUGE-L  ES     FQ p  MU  Final  recovery",
        "----------  --------  ------------  ---------  -------  --  -------  --  -----  --------",
        "default     target    none              0.988        –   –        –   –      –         –",
        "default     retained  none              0.010        –   –        –   –      –         –",
        "default     grom      none              0.100        –   –  1.5e-07   –      –         –",
        "default     grom      nf4               0.200        –   –        –   –      –     0.125",
        "hard        target    none              0.900        –   –        –   –      –         –",
    ]


def test_headline_shows_the_target_on_the_first_set_and_others_on_their_own(metrics):
    numbers = results_table.headline(metrics)
    assert numbers["target"] == {"none": {"forget_probability": 0.987654}}
    assert numbers["retained-default"] == {"none": {"forget_probability": 0.01}}
    assert numbers["grom-default"]["nf4"] == {"forget_probability": 0.2, "recovery": 0.125}


def test_main_prints_the_table_and_where_the_report_is(metrics, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    METRICS.write("data/compare/metrics.parquet", metrics)
    results_table.main()
    printed = capsys.readouterr().out
    assert results_table.results_table(metrics) in printed
    assert printed.endswith("report: data/report/index.html\n")
