"""How Sphinx builds the Chinese pages: as the English ones, but for these lines."""

import sys
from pathlib import Path

import jieba

DOCS = Path(__file__).parent.parent
sys.path.insert(0, str(DOCS))

from conf import *  # noqa: E402, F403

language = "zh_CN"
locale_dirs = ["locales"]  # what Furo says; Sphinx has its own texts in Chinese
exclude_patterns = []
html_js_files = [*html_js_files, "search-zh.js"]  # noqa: F405
html_theme_options["source_directory"] = "docs/zh/"  # noqa: F405

# Sphinx splits Chinese by jieba; these words are not in jieba's dictionary.
jieba.setLogLevel("WARNING")
html_search_options = {"dict": str(DOCS / "zh" / "words.txt")}
