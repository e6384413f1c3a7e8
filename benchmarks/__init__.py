"""What a decision costs in process, beside other libraries and a hand-written bucket: `python -m benchmarks`."""
