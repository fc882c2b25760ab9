"""HTML as a reader takes it: which elements there are, and what they say."""

from html.parser import HTMLParser

VOID = {"br", "img", "meta", "rect", "path", "link", "hr", "input"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "formaction"}


class Page(HTMLParser):
    """Reads a page; an element that is not closed in turn fails."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def loaded(self):
        """The addresses that a browser would fetch, or lead to."""
        return [value for _, name, value in self.attributes if name in LOADING]

    def values(self, name):
        return [value for _, key, value in self.attributes if key == name]
