"""Reports: what a Timeline shows, written for people and for other tools.

:mod:`~kernbench.report.perfetto` writes a trace that https://ui.perfetto.dev opens.
"""
