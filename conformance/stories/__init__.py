"""The stories behind the tables: cases as people state them, with expectations written by hand."""

STORIES = (
    "token_bucket",
)
