"""What a decision costs in process, beside other libraries and a bucket by hand: `python -m benchmarks`."""
