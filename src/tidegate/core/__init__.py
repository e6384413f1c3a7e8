"""The pure core: no clock, no chance, no input or output, no threads.

Start with `level.py`, the law that bucket, meter and queue share.
"""
