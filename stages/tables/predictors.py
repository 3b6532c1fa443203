"""Table `predictors`: other quantities, known before unlearning, that may tell how hard an example is to unlearn."""

import pyarrow as pa

from stages.tables.table import Table

PREDICTORS = Table(
    "predictors",
    1,
    {
        "id": (pa.int64(), "example id"),
        "predictor": (
            pa.string(),
            "mrd | answer_nll | gradient_norm | prompt_tokens | answer_tokens | lexical_similarity_retain | "
            "lexical_similarity_pool | question_position",
        ),
        "value": (pa.float64(), "mrd: no unit, low is hard; nll: nats per token; counts: tokens; similarities: 0 to 1"),
    },
)
