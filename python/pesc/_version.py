__version__ = "0.1.0"  # of the header that _c.py follows
