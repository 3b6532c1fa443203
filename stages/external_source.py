"""Where data and models outside the repository are: a relative path in params.yaml counts from the main checkout."""

import os
from pathlib import Path

ROOT = "EFFACE_ROOT"


def located(source: str) -> str:
    """A folder or file named in params.yaml, seen from `EFFACE_ROOT` (set for profiles, which run in a clone of the
    main checkout) or the working directory; what does not exist there, as a name on the Hub, stays as it is."""
    path = Path(os.environ.get(ROOT) or ".") / source
    return str(path) if path.exists() else source
