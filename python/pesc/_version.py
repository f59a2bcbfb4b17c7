__version__ = "0.2.0"  # of the header that _c.py follows
