"""The site: ``make docs``.

Sphinx reads the project's root, of which it takes the pages below, so that every page is where it is in the repository,
and its links and pictures work in both places. Nothing is fetched, neither when the site is built nor when it is read.
"""

import re
from importlib.metadata import version as version_of
from pathlib import PurePosixPath

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
include_patterns = ["docs/**.md", "experiments/**.md", "benchmarks/**.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "*/_build", "dist", "src", "tests", "experiments/runs"]
suppress_warnings = ["myst.header"]  # a summary may begin with its second heading

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 3
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures name and order; the text says what may be given
autodoc_default_options = {"members": True}
autoclass_content = "class"
autodoc_mock_imports = [
    *("blackjax", "dask", "distributed", "emcee", "jax", "numpyro", "nutpie", "pymc", "pytensor", "torch"),
]

nitpicky = True
nitpick_ignore_regex = [("py:.*", r"steinstream\._.*")]  # what is private has no page
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = ">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "steinstream"
html_static_path = ["_static"]
html_extra_path = ["_extra"]  # the front door: it leads to docs/index.html
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00684a", "color-brand-content": "#00684a"},
    "dark_css_variables": {"color-brand-primary": "#5cc9a3", "color-brand-content": "#5cc9a3"},
}
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def sections(app, what, name, thing, options, lines):
    """Parameters and examples of a docstring as lists; an attribute's sentence stays a sentence."""
    if what in ("class", "function", "method"):
        plain = Config(  # types are text, not links
            napoleon_use_param=False,
            napoleon_use_rtype=False,
            napoleon_custom_sections=[("Attributes", "params_style")],
        )
        lines[:] = NumpyDocstring(lines, plain, app, what, name, thing, options).lines()


def without_aliases(app, what, name, thing, skip, options):
    """Fields of a named tuple say nothing of themselves; the class does."""
    return True if str(getattr(thing, "__doc__", "")).startswith("Alias for field number") else None


def fitted(app, page, text):
    """What plain Markdown cannot say: which pages hang on a page, and the title of an experiment's numbers."""
    path = PurePosixPath(page)
    if path.name == "summary":
        text[0] = f"---\norphan: true\n---\n# {path.parent.name}: all numbers\n\n{text[0]}"
    if path.name == "README":  # of a folder: the pages below it that it links to, in that order
        links = dict.fromkeys(re.findall(r"\]\(((?:[\w-]+/)?[\w-]+)\.md[)#]", text[0]))
        if links:
            text[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *links, "```", ""])
    text[0] = text[0].replace("\n\n```\n", "\n```\n")  # the empty line that ends an example


def unbroken(app, tree):
    """10 000 stays on one line."""
    for node in list(tree.findall(nodes.Text)):
        if not isinstance(node.parent, nodes.literal | nodes.literal_block):
            node.parent.replace(node, nodes.Text(re.sub(r"(?<=\d) (?=\d{3}\b)", "\N{NARROW NO-BREAK SPACE}", node)))


def formula(page, node):
    """MathML, which browsers show by themselves: no script, no font to fetch."""
    try:
        page.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    except MathError as problem:
        logging.getLogger(__name__).warning("%s", problem, location=node)
    raise nodes.SkipNode


def setup(app):
    """What Sphinx calls."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-docstring", sections)
    app.connect("autodoc-skip-member", without_aliases)
    app.connect("source-read", fitted)
    app.connect("doctree-read", unbroken)
