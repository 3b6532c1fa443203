"""RELEARNED: every forget example of one model after fine-tuning attacks of growing length."""

import pyarrow as pa

from stages.tables.table import Table

RELEARNED = Table(
    name="relearned",
    version=1,
    columns={
        "model": (pa.string(), "model as named in params.relearned"),
        "attack": (pa.string(), "attack as named in params.relearn_attack"),
        "steps": (pa.int64(), "optimizer steps of the attack"),
        "id": (pa.int64(), "example of the model's forget set, anchors excluded"),
        "used": (pa.bool_(), "whether the attack trained on this very example"),
        "metric": (pa.string(), "answer_nll (nats per token), probability, extraction_strength, rougeL_recall, …"),
        "value": (pa.float64(), "value of the metric after the attack"),
    },
)
