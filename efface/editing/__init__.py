"""Closed-form and subspace edits of a model's weights."""
