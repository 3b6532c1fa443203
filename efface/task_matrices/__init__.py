"""The weight change that a partition of the data causes, module by module."""
