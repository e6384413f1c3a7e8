"""The stories behind the tables: cases as people state them, with expectations written by hand."""

STORIES = (
    "token_bucket",
    "leaky_bucket",
    "leaky_queue",
    "nginx",
    "sliding_log",
    "fixed_window",
    "sliding_window",
    "layered",
    "clock",
    "refunds",
    "changed_limits",
    "edges",
    "patience",
)
