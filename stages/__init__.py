"""How the pipeline is run once: one file per DVC stage."""
