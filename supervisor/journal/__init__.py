"""What is kept of calls after they end: results and raw outputs."""
