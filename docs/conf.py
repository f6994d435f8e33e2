"""Of Sphinx, which makes the site from what docs/make_site.py wrote: `make docs`."""

import importlib.metadata

project = "slurmplug"
release = importlib.metadata.version(project)
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
smartquotes = False  # "--" is the beginning of an option
myst_heading_anchors = 6  # links lead to headings as they do on a Git forge
highlight_language = "text"
html_theme = "furo"
templates_path = ["layout"]
html_title = f"{project} {release}"
html_use_index = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_show_copyright = False
