"""What holds while the network splits: real servers and workers on hosts of their own.

See docs/reports/partitions.md.
"""
