"""Execute a notebook in its kernel, all cells even if one fails, and write the result.

usage: execute.py NOTEBOOK RESULT
"""

import sys

import nbformat
from nbclient import NotebookClient

source, result = sys.argv[1:]
notebook = nbformat.read(source, as_version=4)
client = NotebookClient(notebook, timeout=180, allow_errors=True, record_timing=False)
client.execute()
nbformat.write(notebook, result)
