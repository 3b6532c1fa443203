"""The Parquet tables, one file each."""
