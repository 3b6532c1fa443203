"""Published and embedded corpora, read into examples."""
