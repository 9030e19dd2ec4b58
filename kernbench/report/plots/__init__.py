"""Pictures of runs and sweeps, one module each: a function that finds the data, and one that draws them.

The data are plain frozen dataclasses that can be looked at, and tested, without an image; ``..._figure`` turns them
into a matplotlib ``Figure`` that nothing global knows of. :mod:`~kernbench.report.plots.style` has what all pictures
share, and saves them: ``save(causes_figure(causes_data([result])), "causes.svg")``.
"""
