"""Configuration of the site: ``make docs``.

The source folder of Sphinx is the root of the repository, so that links and pictures of a page work on the site and in
the repository. Nothing is downloaded, neither when the site is built nor when it is read.
"""

import re
from importlib.metadata import version as version_of
from pathlib import Path, PurePosixPath

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.util import logging

project = "steinstream"
author = "The steinstream developers"
copyright = author
version = release = version_of("steinstream")

root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/**.ipynb",
    "experiments/**.md",
    "benchmarks/**.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".*", "*/_build", "dist", "src", "tests", "experiments/runs"]
suppress_warnings = ["myst.header"]  # a summary may begin with its second heading

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["attrs_block", "colon_fence", "dollarmath"]
nb_execution_mode = "off"  # the outputs are stored; tests/test_notebooks.py compares them
myst_heading_anchors = 3
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the types are in the lists of parameters
autodoc_default_options = {"members": True}
autoclass_content = "class"
autodoc_mock_imports = [
    *("blackjax", "dask", "distributed", "emcee", "jax", "numpyro", "nutpie", "pymc", "pytensor", "torch"),
]

nitpicky = True
nitpick_ignore_regex = [("py:.*", r"steinstream\._.*"), ("py:mod", r"steinstream\..*")]  # modules without a page
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = ">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True

linkcheck_retries = 2
linkcheck_timeout = 20
linkcheck_workers = 2  # few requests at once: some servers limit them

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "steinstream"
html_static_path = ["_static"]
html_extra_path = ["_extra"]  # redirects to docs/index.html
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00684a", "color-brand-content": "#00684a"},
    "dark_css_variables": {"color-brand-primary": "#5cc9a3", "color-brand-content": "#5cc9a3"},
}
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
pygments_style = "default"
pygments_dark_style = "github-dark"


def sections(app, what, name, thing, options, lines):
    """Convert the sections of a numpydoc docstring."""
    if what in ("class", "function", "method"):
        plain = Config(  # types are text, not links
            napoleon_use_param=False,
            napoleon_use_rtype=False,
            napoleon_custom_sections=[("Attributes", "params_style")],
        )
        lines[:] = NumpyDocstring(lines, plain, app, what, name, thing, options).lines()


def without_aliases(app, what, name, thing, skip, options):
    """Leave out fields of named tuples; the class documents them."""
    return True if str(getattr(thing, "__doc__", "")).startswith("Alias for field number") else None


def fitted(app, page, text):
    """Add to a page what Markdown cannot express: the pages below it, and the title of the numbers of an experiment."""
    path = PurePosixPath(page)
    if path.name == "summary":
        text[0] = f"---\norphan: true\n---\n# {path.parent.name}: all numbers\n\n{text[0]}"
    if path.name == "README":  # of a folder: the pages below it that it links to, in that order
        links = dict.fromkeys(re.findall(r"\]\(((?:[\w-]+/)?[\w-]+)\.(?:md|ipynb)[)#]", text[0]))
        if links:
            text[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *links, "```", ""])
    text[0] = text[0].replace("\n\n```\n", "\n```\n")  # the empty line at the end of an example


def unbroken(app, tree):
    """Keep 10 000, 5 % and 0.4 ± 0.1 on one line."""
    for node in list(tree.findall(nodes.Text)):
        if not isinstance(node.parent, nodes.literal | nodes.literal_block):
            spaces = r"(?<=\d) (?=\d{3}\b|%|± \d)|(?<=\d ±) (?=\d)"
            node.parent.replace(node, nodes.Text(re.sub(spaces, "\N{NARROW NO-BREAK SPACE}", node)))


def formula(page, node):
    """Write MathML, which browsers show without a script or a font."""
    text = re.sub(r"\\log\s*(?=[\\\w])", r"\\,\\log\\, ", node.astext())  # MathML has no space around functions
    try:
        found = tex2mathml(text, as_block=isinstance(node, nodes.math_block))
        page.body.append(re.sub(r"<mo( \w+=\"\w+\")?>([|‖])</mo>", r'<mo\1 lspace="0" rspace="0">\2</mo>', found))
    except MathError as problem:
        logging.getLogger(__name__).warning("%s", problem, location=node)
    raise nodes.SkipNode


ACCESSIBLE = {  # what axe-core reports about the markup of Sphinx and of the theme, and its replacement
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
    '<th class="head"><p></p></th>': '<td class="head"></td>',
    "<pre>": '<pre tabindex="0">',  # wide code and tables can be scrolled with the keyboard
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
}


def make_accessible(app, exception):
    """Replace markup that assistive technology cannot use, in every page."""
    if exception is None and app.builder.name == "html":
        for page in Path(app.outdir).rglob("*.html"):
            old = text = page.read_text(encoding="utf-8")
            for found, replacement in ACCESSIBLE.items():
                text = text.replace(found, replacement)
            if text != old:
                page.write_text(text, encoding="utf-8")


def setup(app):
    """Connect the functions above."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-docstring", sections)
    app.connect("autodoc-skip-member", without_aliases)
    app.connect("source-read", fitted)
    app.connect("doctree-read", unbroken)
    app.connect("build-finished", make_accessible)
