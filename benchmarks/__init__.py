"""Speed, memory and tuning, measured side by side."""
