"""How the pipeline is run again: Prefect flows over the DVC stages."""
