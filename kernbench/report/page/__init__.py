"""Pages: a run, or a sweep, as one HTML file that needs nothing else: no network, no other file, no server.

Python finds what is shown (:mod:`~kernbench.report.page.run_page`, :mod:`~kernbench.report.page.sweep_page`), Jinja2
templates say how it looks, and the whole result stands in the page as JSON, too.
"""
