"""Sphinx's configuration for the web book. go run ./tutorials/book prepares the sources."""

project = "Logbook"
copyright = "the authors of Logbook"
html_title = "Logbook"
language = "en"

extensions = ["myst_nb"]
nb_execution_mode = "off"  # the notebooks hold the outputs of a real run, which make test compares
nb_ipywidgets_js = {}  # nothing is loaded from the network
nb_merge_streams = True
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type", "epub.unknown_project_files", "misc.highlighting_failure"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "tango"
pygments_dark_style = "monokai"

version = release = "1"  # EPUB asks for one
epub_show_urls = "no"
epub_use_index = False
