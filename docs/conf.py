"""How Sphinx builds these pages."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from flask_idempotence import __version__

project = "Flask-Idempotence"
author = "The Flask-Idempotence contributors"
copyright = f"{author}; MIT licence"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"{project} {release}"
html_short_title = project
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {
    # The colours of the example application, in whose pictures they are seen.
    "light_css_variables": {"color-brand-primary": "#0b6e63", "color-brand-content": "#0b6e63"},
    "dark_css_variables": {"color-brand-primary": "#5fd0bd", "color-brand-content": "#5fd0bd"},
}

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

# A page that is not there, or a heading, is an error. What a docstring calls by a short name, or
# what belongs to Flask, redis or SQLAlchemy, has no page here.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]

linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [
    r"https?://(localhost|127\.0\.0\.1|\[::1\])",
    r"https?://([\w-]+\.)*example(\.(com|org|net))?(/|:|$)",  # RFC 2606: nobody's
]

default_role = "code"  # docstrings put code between single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
