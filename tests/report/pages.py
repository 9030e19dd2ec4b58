"""Reading a page back with the standard library's parser: its sections, tables, attributes and embedded JSON."""

import json
from html.parser import HTMLParser


class Page(HTMLParser):
    """What a page holds."""

    VOID = frozenset({"meta", "link", "input", "br", "img", "path", "use", "rect"})

    def __init__(self, text):
        super().__init__()
        self.rows = {}
        """Section → rows; a row is its cells' texts."""
        self.exact = {}
        """Section → rows; a row is the numbers of its ``<data>`` elements."""
        self.texts = {}
        """Section → all its text."""
        self.attributes = []
        """(element, attribute, value)"""
        self.data = {}
        """Id → JSON that is embedded under it."""
        self.styles = []
        self.open = []
        self._section, self._script, self._cell = None, None, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "section":
            self._section = given["id"]
            self.rows[self._section], self.exact[self._section], self.texts[self._section] = [], [], ""
        elif tag == "script" and given.get("type") == "application/json":
            self._script = given["id"]
            self.data[self._script] = ""
        elif self._section is not None and tag == "tr":
            self.rows[self._section].append([])
            self.exact[self._section].append([])
        elif self._section is not None and tag in ("td", "th"):
            self.rows[self._section][-1].append("")
            self._cell = tag
        elif tag == "data" and self._cell:
            self.exact[self._section][-1].append(float(given["value"]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} ends something else"
        if tag == "section":
            self._section = None
        elif tag == "script" and self._script:
            self.data[self._script] = json.loads(self.data[self._script])
            self._script = None
        elif tag == self._cell:
            self._cell = None

    def handle_data(self, data):
        if self._script:
            self.data[self._script] += data
        elif self.open and self.open[-1] == "style":
            self.styles.append(data)
        elif self._section is not None:
            self.texts[self._section] += data
            if self._cell:
                self.rows[self._section][-1][-1] += data

    def row(self, section, name):
        """Return the cells behind the first that has this text, in a section."""
        (found,) = (row for row in self.rows[section] if row and row[0].strip() == name)
        return [cell.strip() for cell in found[1:]]

    def numbers(self, section, name):
        """Return the exact numbers in that row."""
        (found,) = (i for i, row in enumerate(self.rows[section]) if row and row[0].strip() == name)
        return self.exact[section][found]
