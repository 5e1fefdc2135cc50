"""What lettaspace costs, as ratios against a baseline measured in the same run.

`python -m bench [NAME...] [--json] [--quick]`; docs/benchmarks.md says what each figure means.
"""
