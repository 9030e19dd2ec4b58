"""Reports: what runs and sweeps found, for people and for other tools.

:mod:`~kernbench.report.plots` draws pictures, :mod:`~kernbench.report.page` makes HTML pages of them,
:mod:`~kernbench.report.compare` says what changed between two runs, and :mod:`~kernbench.report.perfetto` writes a
timeline that https://ui.perfetto.dev opens. What a result file does not hold, :mod:`~kernbench.report.again` finds by
timing the run again.
"""
